"""Helpers that are optimised once, in their callers: what this needs of Numba is not public, so it may be missing."""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class HelperLibrary(JITCodeLibrary):
    """The code of a helper, for its callers to take in.

    Numba would optimise it and turn it into machine code at every level of calls. It is enough to do so once, for the
    whole, where the helpers have been put in place of their calls: this halves the time that LLVM takes.
    """

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """Asked for once, to tell the machine code where Python's objects are; there is none, and it needs none."""
        return self

    def set_env(self, *environment: Any) -> None:
        pass


class HelperCompiler(Compiler):
    """Numba's compiler, with a library of the kind above for what it makes."""

    def define_pipelines(self) -> Any:
        library: Any = HelperLibrary
        self.state.library = library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()
