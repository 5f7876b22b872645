from .client import TRIES as TRIES, RequestSize as RequestSize
