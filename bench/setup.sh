#!/usr/bin/env bash
# Sets up what the bench needs beyond a Rust toolchain and Python 3: bench/.venv with the pinned peers,
# Java for Spark, fio for the limit, and the extsort peer; with the word `seeks` also STXXL and Hadoop, with `traces`
# strace and a headless browser. Safe to run again; does only what is missing.

set -euo pipefail
cd "$(dirname "${BASH_SOURCE[0]}")"

as_root() {
    if [[ $(id -u) == 0 ]]; then "$@"; else sudo "$@"; fi
}

packages=()
command -v fio >/dev/null || packages+=(fio)
command -v java >/dev/null || packages+=(default-jre-headless)
python3 -c 'import ensurepip, venv' 2>/dev/null || packages+=(python3-venv)
if [[ ${1-} == seeks ]]; then
    [[ -f /usr/include/stxxl/version.h ]] || packages+=(libstxxl-dev)
    command -v g++ >/dev/null || packages+=(g++)
    command -v javac >/dev/null || packages+=(default-jdk-headless)
    command -v mvn >/dev/null || packages+=(maven)
fi
if [[ ${1-} == traces ]]; then
    command -v strace >/dev/null || packages+=(strace)
    command -v cc >/dev/null || packages+=(gcc libc6-dev)
    command -v chromium-headless-shell >/dev/null || command -v chromium >/dev/null ||
        packages+=(chromium-headless-shell)
fi
if [[ ${#packages[@]} != 0 && -z ${ASCOT_NO_APT:-} ]]; then
    echo "bench: installing ${packages[*]}"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq update
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install -y --no-install-recommends "${packages[@]}" >/dev/null ||
        echo "bench: could not install ${packages[*]}; what needs them is reported as unavailable" >&2
fi

stamp=.venv/requirements.stamp
if ! cmp -s requirements.txt "$stamp"; then
    echo "bench: installing the peers into bench/.venv"
    [[ -x .venv/bin/python ]] || python3 -m venv .venv
    .venv/bin/python -m pip install -q --disable-pip-version-check -r requirements.txt
    cp requirements.txt "$stamp"
fi

[[ -x peers/extsort/target/release/extsort-peer ]] || echo "bench: building the extsort peer"
(cd peers/extsort && cargo build -q --release --locked --target-dir target)

[[ ${1-} == seeks ]] || exit 0
if [[ ! peers/stxxl/target/stxxl-peer -nt peers/stxxl/sort.cpp ]]; then
    echo "bench: building the STXXL peer"
    mkdir -p peers/stxxl/target
    g++ -O3 -std=c++14 -DNDEBUG -fopenmp peers/stxxl/sort.cpp -o peers/stxxl/target/stxxl-peer -lstxxl -pthread ||
        echo "bench: the STXXL peer cannot be built, and is reported as unavailable" >&2
fi
if [[ ! peers/hadoop/target/classes/HadoopSort.class -nt peers/hadoop/src/main/java/HadoopSort.java ]]; then
    echo "bench: fetching Hadoop and building its peer"
    (cd peers/hadoop && mvn -q -B package) ||
        echo "bench: the Hadoop peer cannot be built, and is reported as unavailable" >&2
fi
