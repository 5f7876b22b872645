from .backend import DeviceBatch as DeviceBatch, TorchBackend as TorchBackend
from .loading import limit_last_layer_to_first_token as limit_last_layer_to_first_token
