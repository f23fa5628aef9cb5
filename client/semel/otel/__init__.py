"""Producer and Consumer with OpenTelemetry: spans by the messaging conventions, and W3C trace context in headers.

    from semel.otel import Consumer, Producer

They are the classes of `semel`, with the same settings and calls. Install `semel[otel]`. Without an import of this
module nothing of OpenTelemetry is imported, and the classes of `semel` cost nothing more.
"""

from semel.otel.consumer import Consumer
from semel.otel.producer import Producer

__all__ = ["Consumer", "Producer"]
