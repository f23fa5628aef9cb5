"""Python imports this file when it starts, if its folder is on the path: then `import aiokafka` gives semel."""

import semel.aiokafka

semel.aiokafka.install()
