#!/usr/bin/env bash
# Create .venv from requirements.lock. Needs Python 3.11 or newer; installs Debian's venv module if that is missing.
set -euo pipefail
cd "$(dirname "$0")/.."

find_python() {
  for name in "${PYTHON:-python3}" python3.14 python3.13 python3.12 python3.11; do
    if command -v "$name" >/dev/null 2>&1 &&
       "$name" -c 'import sys; sys.exit(sys.version_info < (3, 11))' 2>/dev/null; then
      echo "$name"
      return
    fi
  done
  echo "permea needs Python 3.11 or newer; none was found. Install it (Debian: apt-get install python3)" >&2
  echo "or name one: make PYTHON=/path/to/python3.12 ..." >&2
  exit 1
}

create_venv() {
  rm -rf .venv
  "$1" -m venv .venv
}

install_debian_venv() {
  if [ "$(id -u)" = 0 ]; then
    apt-get update -qq && apt-get install -y -qq python3-venv
  elif sudo -n true 2>/dev/null; then
    sudo apt-get update -qq && sudo apt-get install -y -qq python3-venv
  else
    echo "Python's venv module is missing. Install it (Debian: sudo apt-get install python3-venv) and run make again." >&2
    exit 1
  fi
}

python=$(find_python)
echo "creating .venv with $("$python" --version) (once; a few minutes of downloads)"
create_venv "$python" >/dev/null 2>&1 || { install_debian_venv; create_venv "$python"; }
pip="./.venv/bin/python -m pip --disable-pip-version-check -qq"
$pip install -r requirements.lock
$pip install --no-deps -e .
echo "environment ready in .venv"
