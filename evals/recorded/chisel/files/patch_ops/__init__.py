__version__ = "0.4.1"
from patch_ops._C import unfold4  # noqa: F401
