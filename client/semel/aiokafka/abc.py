"""aiokafka's `abc`: the base classes that applications derive from."""

from abc import ABC, abstractmethod

from semel._subscription.listener import ConsumerRebalanceListener

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class AbstractTokenProvider(ABC):
    """A source of OAuth tokens, for `sasl_oauth_token_provider`."""

    @abstractmethod
    async def token(self) -> str:
        """A valid token. It is called for each connection, and again before its session ends."""

    def extensions(self) -> dict[str, str]:
        """Key-value pairs that are sent with the token."""
        return {}
