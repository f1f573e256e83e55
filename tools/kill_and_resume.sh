#!/usr/bin/env bash
# Kills a zip at random moments, lets it go on, and compares the result with that of a run nobody killed.
# Usage: tools/kill_and_resume.sh [TIMES] [SEED]
set -euo pipefail
cd "$(dirname "$0")/.."
times=${1:-10}
RANDOM=${2:-1}
cargo build --release --quiet
folder=$(mktemp -d)
trap 'rm -rf "$folder"' EXIT
zip() {
    target/release/mtz zip a=models/lenet-5-a.onnx b=models/lenet-5-b.onnx --data data/mnist --retrain 20 --force -q "$@" >/dev/null 2>&1
}
begin=$(date +%s%N)
zip -o "$folder/whole.onnx"
took=$(( ($(date +%s%N) - begin) / 1000000 ))
for i in $(seq "$times"); do
    rm -rf "$folder/state"
    kills=0
    while true; do
        zip -o "$folder/killed.onnx" --checkpoint "$folder/state" &
        child=$!
        # A run that is killed too early never gets anywhere; later ones get more time.
        wait_ms=$(( RANDOM % took + 100 + kills * took / 4 ))
        sleep "$(printf '%d.%03d' $((wait_ms / 1000)) $((wait_ms % 1000)))"
        if kill -0 "$child" 2>/dev/null && [ "$kills" -lt 6 ]; then
            pkill -9 -P "$child" 2>/dev/null || true
            kill -9 "$child" 2>/dev/null || true
            wait "$child" 2>/dev/null || true
            kills=$((kills + 1))
        else
            wait "$child"
            break
        fi
    done
    cmp "$folder/whole.onnx" "$folder/killed.onnx"
    echo "run $i: killed $kills times, the same bytes"
done
