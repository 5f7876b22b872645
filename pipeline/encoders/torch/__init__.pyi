from .attention import limit_last_layer_to_first_token as limit_last_layer_to_first_token
from .backend import DeviceBatch as DeviceBatch, TorchBackend as TorchBackend
