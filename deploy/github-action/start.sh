#!/usr/bin/env bash
# Installs semel and starts a broker that outlives the step. The runner ends it with the job.
# PYTHON, PACKAGE, PORT, SETTINGS: see action.yml. RUNNER_TEMP and GITHUB_OUTPUT are the runner's.
set -euo pipefail

folder=$(mktemp -d "$RUNNER_TEMP/semel.XXXXXX")
if [[ -n "${PACKAGE:-}" ]]; then
    "$PYTHON" -m venv "$folder/venv"
    PYTHON="$folder/venv/bin/python"
    "$PYTHON" -m pip install --quiet "$PACKAGE"
fi

words=()
while IFS= read -r line; do
    [[ -z "$line" ]] || words+=(--set "$line")
done <<< "${SETTINGS:-}"

nohup "$PYTHON" -m semel_broker --port "${PORT:-9092}" --data-dir "$folder/data" --set group.initial.rebalance.delay.ms=0 \
    --log-format json ${words[@]+"${words[@]}"} > "$folder/log" 2>&1 &
broker=$!

# The line `ready` has the port, also where the broker took a free one.
for _ in $(seq 600); do
    address=$(sed -n '/"event":"ready"/s/.*"advertised":"\([^"]*\)".*/\1/p' "$folder/log")
    [[ -z "$address" ]] || break
    kill -0 "$broker" 2> /dev/null || break
    sleep 0.1
done
if [[ -z "$address" ]] || ! "$PYTHON" -m semel_broker.health "$address"; then
    echo "::error::the broker did not start; its log:"
    cat "$folder/log"
    exit 1
fi
echo "a broker listens on $address; its log is $folder/log"
echo "bootstrap-servers=$address" >> "$GITHUB_OUTPUT"
