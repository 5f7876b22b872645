from .reproduction import compare_with_original as compare_with_original, reproduce as reproduce
