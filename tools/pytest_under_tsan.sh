#!/usr/bin/env bash
# Runs tests with an extension that was built with NEURON_SANITIZE=thread:
#   tools/pytest_under_tsan.sh BUILD_DIRECTORY TEST...
# Requires: cmake on the path, and .venv with the packages of the tests. Python and torch are not instrumented: what they
# share among threads is not looked at, what ours share is.
set -euo pipefail
root=$(cd "$(dirname "$0")/.." && pwd)
build=$(cd "$1" && pwd)
shift

rm -rf "$build/packages"
mkdir "$build/packages"
cp -r "$root"/neuron_emu "$root"/torch_neuronx "$build/packages/"
cmake --install "$build" --prefix "$build/packages" > /dev/null
python=$build/venv/bin/python
[ -x "$python" ] || "$root/.venv/bin/python" -m venv --without-pip "$build/venv"
# As lines of a .pth: what .pth files there name (this project's own tree) is not followed.
printf '%s\n' "$build/packages" "$("$root/.venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')" \
  > "$("$python" -c 'import sysconfig; print(sysconfig.get_path("platlib"))')/packages.pth"

export LD_PRELOAD NEURON_EMU_QUIET=1
export TSAN_OPTIONS="ignore_noninstrumented_modules=1 report_signal_unsafe=0 exitcode=66 log_path=$build/report"
LD_PRELOAD=$("${CXX:-c++}" -print-file-name=libtsan.so)
rm -f "$build"/report.*
cd "$build"  # away from the sources, which have no extension
# TSan's memory map leaves no room for random addresses.
setarch -R "$python" -m pytest -c "$root/pyproject.toml" --rootdir "$root" -p no:cacheprovider "${@/#/$root/}"
if compgen -G "$build/report.*" > /dev/null; then
  cat "$build"/report.*
  exit 1
fi
