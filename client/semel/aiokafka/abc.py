"""aiokafka's `abc`: the base classes that applications derive from."""

from abc import ABC, abstractmethod

from semel._subscription.listener import ConsumerRebalanceListener

__all__ = ["AbstractTokenProvider", "ConsumerRebalanceListener"]


class AbstractTokenProvider(ABC):
    """A source of OAuth tokens. Classes derived from it can be defined; the client refuses them until it has SASL."""

    @abstractmethod
    async def token(self) -> str:
        """The token in its text form."""

    def extensions(self) -> dict[str, str]:
        """Key-value pairs that are sent with the token."""
        return {}
