"""Optimise helpers once, inside their callers. This uses private parts of Numba, which may be missing."""

from __future__ import annotations

from typing import Any

from numba.core.codegen import JITCodeLibrary
from numba.core.compiler import Compiler


class HelperLibrary(JITCodeLibrary):
    """The code of a helper, to be inlined into its callers.

    Numba would optimise it and generate machine code at every level of calls. Doing so once, for the caller with all
    helpers inlined, is enough and halves the time that LLVM takes.
    """

    def _optimize_final_module(self) -> None:
        pass

    def _finalize_final_module(self) -> None:
        self._finalized = True

    @property
    def codegen(self) -> Any:
        """Numba asks for it once, to call `set_env`; without machine code there is nothing to set."""
        return self

    def set_env(self, *environment: Any) -> None:
        pass


class HelperCompiler(Compiler):
    """Numba's compiler, with a `HelperLibrary` for its output."""

    def define_pipelines(self) -> Any:
        library: Any = HelperLibrary
        self.state.library = library(self.state.targetctx.codegen(), self.state.func_id.func_qualname)
        return super().define_pipelines()
