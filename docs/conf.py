"""How `make docs` builds the site from these pages. The site needs no network: nothing is loaded from elsewhere."""

from __future__ import annotations

import atexit
import logging
import os
import shutil
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))

import jupyter_client
import traitlets

import cabai

project = "cabai"
author = "The cabai authors"
project_copyright = author
version = release = cabai.__version__

extensions = ["myst_nb", "sphinx.ext.autodoc", "site_parts"]
myst_enable_extensions = ["dollarmath", "amsmath"]
myst_heading_anchors = 4  # by the names that forges give them

# The notebooks are run again by every build, each in a folder of its own.
nb_execution_mode = "force"
nb_execution_in_temp = True
nb_execution_raise_on_error = True
nb_execution_timeout = 120
nb_merge_streams = True
logging.getLogger("traitlets").setLevel(logging.WARNING)

# Nothing of the user's own is read or written by them, and nothing is logged.
OWN = tempfile.mkdtemp()
atexit.register(shutil.rmtree, OWN, ignore_errors=True)
os.environ["IPYTHONDIR"] = OWN
Path(OWN, "profile_default").mkdir()
Path(OWN, "profile_default", "ipython_kernel_config.py").write_text("c.IPKernelApp.log_level = 40\n")


class LocalKernelManager(jupyter_client.AsyncKernelManager):
    """Talks to kernels by files, not by ports of this machine, which another program may take in between."""

    @traitlets.default("transport")
    def _transport_default(self) -> str:
        return "ipc" if os.name == "posix" else "tcp"

    def _ip_default(self) -> str:
        return f"{OWN}/kernel" if self.transport == "ipc" else super()._ip_default()


jupyter_client.AsyncKernelManager = LocalKernelManager

default_role = "code"  # in docstrings, a name between backticks is code
autodoc_member_order = "bysource"
autodoc_typehints_format = "short"
python_use_unqualified_type_names = True
maximum_signature_line_length = 88
add_module_names = False
toc_object_entries_show_parents = "hide"
# Types of other packages, and of cabai's inner modules, have no page of their own.
nitpick_ignore_regex = [("py:.*", r".*")]

html_theme = "furo"
html_title = "cabai"
html_copy_source = False
html_show_sphinx = False
html_math_renderer = "mathml"
html_static_path = ["site.css"]
html_css_files = ["site.css"]
