#!/usr/bin/env bash
# Certificate authority, server certificate and party keys for a trial federation.
#   scripts/make_trial_certificates.sh trial-keys clinic-a clinic-b --host 192.168.1.20
# The folder holds private keys: keep it out of the repository.
set -euo pipefail
here="$(cd "$(dirname "${BASH_SOURCE[0]}")/.." && pwd)"
python="$here/.venv/bin/python"
[ -x "$python" ] || python=python3
exec "$python" -m permea.federation.service.tls "$@"
