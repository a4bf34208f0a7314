# shellcheck shell=bash
# What ./setup and ./test share: the distribution's packages, and a build. Sourced by bash, from the root of the tree.

# Tools and libraries the build needs, Debian's names (Ubuntu's are the same).
packages=(build-essential cmake ninja-build ccache pkg-config git python3 python3-pip libboost-dev libboost-filesystem-dev
  libboost-program-options-dev libyaml-cpp-dev libspdlog-dev libgtest-dev libgmock-dev libdnnl-dev libsimde-dev libhwloc-dev libbenchmark-dev
  libpcre2-dev libutf8proc-dev nlohmann-json3-dev zlib1g-dev binutils curl)

say() { printf '\n== %s\n' "$*"; }
die() { printf '%s: %s\n' "$0" "$*" >&2; exit 1; }

# Installs what is missing; says what. As root, or through sudo.
install_packages() {
  command -v apt-get > /dev/null || die "needs apt-get (Debian 12 or Ubuntu 22.04 and later). Install by hand: ${packages[*]}"
  local missing=() package
  for package in "${packages[@]}"; do
    [[ $(dpkg-query -W -f='${Status}' "$package" 2> /dev/null) == *" installed" ]] || missing+=("$package")
  done
  ((${#missing[@]})) || return 0
  say "installing ${missing[*]}"
  local as_root=()
  if ((EUID != 0)); then
    command -v sudo > /dev/null || die "must install packages: run as root, or install sudo"
    as_root=(sudo)
  fi
  "${as_root[@]}" apt-get update -q
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get install -y -q --no-install-recommends "${missing[@]}"
}

# build PRESET: configures and builds it in build/PRESET.
build() {
  say "building preset '$1'"
  cmake --preset "$1" > "build-$1.log" 2>&1 || { cat "build-$1.log"; rm -f "build-$1.log"; die "cmake failed"; }
  grep -i 'cuda toolkit' "build-$1.log" || true
  rm -f "build-$1.log"
  cmake --build --preset "$1" --parallel "$(nproc)"
}
