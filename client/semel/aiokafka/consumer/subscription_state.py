"""aiokafka's `consumer.subscription_state`: its subscription."""

from semel._subscription.subscription import Subscription as SubscriptionState

__all__ = ["SubscriptionState"]
