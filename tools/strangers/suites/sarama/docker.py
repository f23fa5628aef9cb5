"""EDGE: replaces `docker compose start|stop|logs ... kafka-N` while sarama's tests run: N is a broker of the runner."""

from __future__ import annotations

import os
import sys

from tools.strangers import control, script


def main(words: list[str]) -> None:
    do = words[1] if words[:1] == ["compose"] and len(words) > 2 else ""
    number = words[-1].removeprefix("kafka-")
    if do == "logs":
        logs = [script.scratch() / "broker.log", script.scratch() / "logs" / f"broker-{number}.log"]
        print("".join(log.read_text(errors="replace") for log in logs if log.is_file()))
    elif do not in ("start", "stop"):
        sys.exit(f"not supported here: docker {' '.join(words)}")
    elif os.environ["STRANGERS_BROKERS"] == "1":
        sys.exit("the only broker is not stopped, because the tests continue with other brokers")
    else:
        control.ask(do, int(number) - 1)


main(sys.argv[1:])
