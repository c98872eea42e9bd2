#!/usr/bin/env bash
# Packs a Python environment with the package, and submits a job with it to YARN, for machines that have Python but not the package.
# Run it as `./submit.sh cluster job.py ARGUMENTS…`, or with `client`, where spark-submit reaches your cluster; PACKAGE=path/to/a.whl
# installs a wheel of `make build`.
set -euo pipefail
mode=${1:?client or cluster}
shift

if [[ ! -e environment.tar.gz ]]; then
    python3 -m venv environment # the same Python must be at the same path on every machine; conda-pack would include it
    environment/bin/pip install "${PACKAGE:-spark-kafka-sink}" venv-pack
    environment/bin/venv-pack --prefix environment --output environment.tar.gz
fi

# In client mode the driver runs here, next to the folder that was packed; in cluster mode in a container with the archive.
# In both, the relative path leads to the environment.
export PYSPARK_PYTHON=./environment/bin/python
exec spark-submit --master yarn --deploy-mode "$mode" \
    --archives environment.tar.gz#environment \
    --conf spark.yarn.appMasterEnv.PYSPARK_PYTHON="$PYSPARK_PYTHON" \
    --conf spark.executor.memoryOverhead=1g \
    "$@"
