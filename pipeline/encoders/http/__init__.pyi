from .client import TRIES as TRIES, Limits as Limits, RequestSize as RequestSize
