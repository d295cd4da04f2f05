#!/usr/bin/env python3
"""Makes the packages of a release out of programs that were built already.

    packaging/build.py --out DIR x86_64-linux=PATH [aarch64-linux=PATH ...]

Each platform gets a package in every format that serves it. The rest (npm's main package, the Homebrew formula, the
Nix flake, the install script, server.json, SHA256SUMS) is made once, from all platforms that were named. What only an owner can
say (repository, names, contact) stands in owner.json; --release refuses the placeholders in it.

Needs Python 3.11, and nothing else. The same input gives the same bytes.
"""

import argparse
import base64
import gzip
import hashlib
import io
import json
import pathlib
import re
import string
import subprocess
import sys
import tarfile
import tempfile
import tomllib
import zipfile

HERE = pathlib.Path(__file__).resolve().parent
ROOT = HERE.parent
SUMMARY = "An MCP server runtime that speaks every revision of the protocol on one endpoint"
LICENSE = "MIT OR Apache-2.0"
# 1980 is where ZIP begins to count.
EPOCH = 315532800


class Platform:
    """What each packager calls one operating system on one processor."""

    def __init__(self, os, cpu, wheel, deb=None, extension=""):
        self.os, self.cpu = os, cpu
        self.wheel, self.deb = wheel, deb
        self.program = f"longshore{extension}"


# The Linux programs are static (deploy/program.sh), so they run on every libc.
PLATFORMS = {
    "x86_64-linux": Platform("linux", "x64", "manylinux_2_17_x86_64.manylinux2014_x86_64.musllinux_1_1_x86_64", "amd64"),
    "aarch64-linux": Platform("linux", "arm64", "manylinux_2_17_aarch64.manylinux2014_aarch64.musllinux_1_1_aarch64", "arm64"),
    "x86_64-macos": Platform("darwin", "x64", "macosx_11_0_x86_64"),
    "aarch64-macos": Platform("darwin", "arm64", "macosx_11_0_arm64"),
    "x86_64-windows": Platform("win32", "x64", "win_amd64", extension=".exe"),
}


def fail(message):
    sys.exit(f"build.py: {message}")


def version_of_project():
    manifest = tomllib.loads((ROOT / "Cargo.toml").read_text())
    return manifest["workspace"]["package"]["version"]


def owner(release):
    names = json.loads((HERE / "owner.json").read_text())
    placeholders = sorted(key for key, value in names.items() if "OWNER" in value)
    if placeholders and release:
        fail(f"packaging/owner.json: {', '.join(placeholders)} still say OWNER; write the real names there")
    if placeholders:
        # Names that registries accept, for packages that are only tried here.
        names = {key: value.replace("OWNER", "example-owner") for key, value in names.items()}
    return names


def libc_of(program):
    """The newest glibc that a dynamically linked Linux program asks for; None if it is static."""
    if not program.startswith(b"\x7fELF") or b"GLIBC_2." not in program or b"ld-linux" not in program:
        return None
    versions = {int(minor) for minor in re.findall(rb"GLIBC_2\.(\d+)", program)}
    return max(versions)


def template(name, **values):
    text = (HERE / "templates" / name).read_text()
    return string.Template(text).substitute(values)


# === Archives ===

def tar_gz(entries, top=""):
    """A .tar.gz of (name, bytes, is_executable)."""
    raw = io.BytesIO()
    with tarfile.open(fileobj=raw, mode="w", format=tarfile.GNU_FORMAT) as tar:
        folders = set()
        for name, content, executable in entries:
            path = pathlib.PurePosixPath(top + name)
            for folder in reversed(path.parents):
                if str(folder) not in ("", ".") and folder not in folders:
                    folders.add(folder)
                    info = tarfile.TarInfo(str(folder))
                    info.type, info.mode, info.mtime = tarfile.DIRTYPE, 0o755, EPOCH
                    tar.addfile(info)
            info = tarfile.TarInfo(str(path))
            info.size, info.mode, info.mtime = len(content), 0o755 if executable else 0o644, EPOCH
            tar.addfile(info, io.BytesIO(content))
    return gzip.compress(raw.getvalue(), 9, mtime=EPOCH)


def zipped(entries):
    out = io.BytesIO()
    with zipfile.ZipFile(out, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content, executable in entries:
            info = zipfile.ZipInfo(name, (1980, 1, 1, 0, 0, 0))
            info.external_attr = (0o100755 if executable else 0o100644) << 16
            info.compress_type = zipfile.ZIP_DEFLATED
            archive.writestr(info, content)
    return out.getvalue()


def ar(members):
    out = bytearray(b"!<arch>\n")
    for name, content in members:
        out += f"{name:<16}{EPOCH:<12}{0:<6}{0:<6}{'100644':<8}{len(content):<10}`\n".encode()
        out += content + b"\n" * (len(content) % 2)
    return bytes(out)


# === Formats ===

def licences():
    return [(name, (ROOT / name).read_bytes(), False) for name in ("LICENSE-MIT", "LICENSE-APACHE")]


def archive(build, platform, name, program):
    files = [(platform.program, program, True), ("README.md", (ROOT / "README.md").read_bytes(), False), *licences()]
    top = f"longshore-{build.version}-{name}"
    if platform.os == "win32":
        return f"{top}.zip", zipped([(f"{top}/{file}", *rest) for file, *rest in files])
    return f"{top}.tar.gz", tar_gz(files, f"{top}/")


def npm_name(build, platform):
    return f"{build.owner['npm_scope']}/longshore-{platform.os}-{platform.cpu}"


def npm_package(build, manifest, files):
    manifest = {
        **manifest,
        "version": build.version,
        "license": LICENSE,
        "homepage": build.owner["homepage"],
        "repository": {"type": "git", "url": f"git+{build.owner['repository']}.git"},
    }
    entries = [("package.json", (json.dumps(manifest, indent=2) + "\n").encode(), False), *files, *licences()]
    return tar_gz(entries, "package/")


def npm_platform(build, platform, program):
    name = npm_name(build, platform)
    manifest = {
        "name": name,
        "description": f"The longshore program for {platform.os} on {platform.cpu}",
        "os": [platform.os],
        "cpu": [platform.cpu],
    }
    content = npm_package(build, manifest, [(f"bin/{platform.program}", program, True)])
    return f"npm/{name.lstrip('@').replace('/', '-')}-{build.version}.tgz", content


def npm_main(build, platforms):
    manifest = {
        "name": "longshore",
        "description": SUMMARY,
        "keywords": ["mcp", "model-context-protocol", "server", "gateway"],
        "mcpName": build.owner["mcp_name"],
        "bin": {"longshore": "bin/longshore.js"},
        "engines": {"node": ">=18"},
        "optionalDependencies": {npm_name(build, PLATFORMS[name]): build.version for name in platforms},
    }
    launcher = template("longshore.js", scope=build.owner["npm_scope"]).encode()
    readme = template("package-readme.md", command="npx longshore", **build.owner).encode()
    files = [("bin/longshore.js", launcher, True), ("README.md", readme, False)]
    return f"npm/longshore-{build.version}.tgz", npm_package(build, manifest, files)


def wheel(build, platform, program):
    tag = platform.wheel
    if platform.os == "linux" and (libc := libc_of(program)):
        cpu = platform.wheel.split("_", 3)[-1].split(".")[0]
        tag = f"manylinux_2_{libc}_{cpu.removeprefix('17_')}"
    base = f"longshore-{build.version}"
    readme = template("package-readme.md", command="uvx longshore", **build.owner)
    metadata = "\n".join([
        "Metadata-Version: 2.4",
        "Name: longshore",
        f"Version: {build.version}",
        f"Summary: {SUMMARY}",
        f"License-Expression: {LICENSE}",
        "License-File: LICENSE-MIT",
        "License-File: LICENSE-APACHE",
        "Requires-Python: >=3.8",
        f"Project-URL: Source, {build.owner['repository']}",
        "Description-Content-Type: text/markdown",
        "",
        readme,
    ])
    tags = [f"Tag: py3-none-{one}" for one in tag.split(".")]
    about = "\n".join(["Wheel-Version: 1.0", "Generator: longshore-packaging", "Root-Is-Purelib: false", *tags, ""])
    files = [
        (f"{base}.data/scripts/{platform.program}", program, True),
        (f"{base}.dist-info/METADATA", metadata.encode(), False),
        (f"{base}.dist-info/WHEEL", about.encode(), False),
        *[(f"{base}.dist-info/licenses/{name}", content, False) for name, content, _ in licences()],
    ]

    def recorded(name, content):
        digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
        return f"{name},sha256={digest},{len(content)}"

    record = [recorded(name, content) for name, content, _ in files] + [f"{base}.dist-info/RECORD,,", ""]
    files.append((f"{base}.dist-info/RECORD", "\n".join(record).encode(), False))
    return f"pypi/{base}-py3-none-{tag}.whl", zipped(files)


def deb(build, platform, program):
    unit = (ROOT / "deploy/systemd/longshore.service").read_text().replace("/usr/local/bin/", "/usr/bin/")
    # The first line says where the file is put by hand.
    unit = "\n".join(line for line in unit.splitlines() if not line.startswith("#")) + "\n"
    copyright = (ROOT / "LICENSE-MIT").read_bytes() + b"\n" + (ROOT / "LICENSE-APACHE").read_bytes()
    data = [
        ("usr/bin/longshore", program, True),
        ("usr/lib/systemd/system/longshore.service", unit.encode(), False),
        ("etc/longshore/longshore.yaml", template("longshore.yaml").encode(), False),
        ("usr/share/doc/longshore/copyright", copyright, False),
    ]
    completions = build.completions(program, platform)
    places = {
        "bash": "usr/share/bash-completion/completions/longshore",
        "zsh": "usr/share/zsh/vendor-completions/_longshore",
        "fish": "usr/share/fish/vendor_completions.d/longshore.fish",
    }
    data += [(places[shell], text, False) for shell, text in completions.items()]
    libc = libc_of(program)
    fields = [
        "Package: longshore",
        f"Version: {build.version}",
        f"Architecture: {platform.deb}",
        f"Maintainer: {build.owner['maintainer']} <{build.owner['contact']}>",
        f"Installed-Size: {sum(len(content) for _, content, _ in data) // 1024}",
        *([f"Depends: libc6 (>= 2.{libc})"] if libc else []),
        "Section: net",
        "Priority: optional",
        f"Homepage: {build.owner['homepage']}",
        f"Description: {SUMMARY}",
        "",
    ]
    sums = [f"{hashlib.md5(content, usedforsecurity=False).hexdigest()}  {name}" for name, content, _ in data]
    control = [
        ("control", "\n".join(fields).encode(), False),
        ("conffiles", b"/etc/longshore/longshore.yaml\n", False),
        ("md5sums", ("\n".join(sums) + "\n").encode(), False),
        ("postinst", template("postinst").encode(), True),
        ("prerm", template("prerm").encode(), True),
        ("postrm", template("postrm").encode(), True),
    ]
    members = [
        ("debian-binary", b"2.0\n"),
        ("control.tar.gz", tar_gz(control, "./")),
        ("data.tar.gz", tar_gz(data, "./")),
    ]
    return f"longshore_{build.version}_{platform.deb}.deb", ar(members)


def mcpb(build, platform, name, program):
    manifest = {
        "manifest_version": "0.3",
        "name": "longshore",
        "display_name": "Longshore",
        "version": build.version,
        "description": SUMMARY,
        "author": {"name": build.owner["maintainer"]},
        "repository": {"type": "git", "url": build.owner["repository"]},
        "homepage": build.owner["homepage"],
        "license": LICENSE,
        "server": {
            "type": "binary",
            "entry_point": f"server/{platform.program}",
            "mcp_config": {
                "command": "${__dirname}/server/" + platform.program,
                "args": ["run", "--transport", "stdio", "--config", "${user_config.configuration}"],
            },
        },
        "user_config": {
            "configuration": {
                "type": "file",
                "title": "Configuration file",
                "description": "What to serve: sources, upstreams and toolsets, in YAML, TOML or JSON. `longshore init FOLDER` writes one.",
                "required": True,
            }
        },
        "tools_generated": True,
        "compatibility": {"platforms": [platform.os]},
    }
    files = [
        ("manifest.json", (json.dumps(manifest, indent=2) + "\n").encode(), False),
        (f"server/{platform.program}", program, True),
        *licences(),
    ]
    return f"longshore-{build.version}-{name}.mcpb", zipped(files)


def server_json(build, made):
    stdio = {"type": "stdio"}
    serve = [
        {"type": "positional", "value": "run"},
        {"type": "named", "name": "--transport", "value": "stdio"},
        {
            "type": "named",
            "name": "--config",
            "description": "What to serve: sources, upstreams and toolsets. Without it the demo tools are served.",
            "format": "filepath",
        },
    ]
    release = f"{build.owner['repository']}/releases/download/v{build.version}"
    package = {"version": build.version, "transport": stdio, "packageArguments": serve}
    packages = [
        {"registryType": "npm", "identifier": "longshore", "runtimeHint": "npx", **package},
        {"registryType": "pypi", "identifier": "longshore", "runtimeHint": "uvx", **package},
        {"registryType": "cargo", "identifier": "longshore", **package},
        {"registryType": "oci", "identifier": f"{build.owner['image']}:{build.version}", "runtimeHint": "docker",
         "transport": stdio, "packageArguments": serve},
    ]
    packages += [
        {"registryType": "mcpb", "identifier": f"{release}/{name}", "version": build.version,
         "fileSha256": hashlib.sha256(content).hexdigest(), "transport": stdio}
        for name, content in made if name.endswith(".mcpb")
    ]
    return {
        "$schema": "https://static.modelcontextprotocol.io/schemas/2025-12-11/server.schema.json",
        "name": build.owner["mcp_name"],
        "title": "Longshore",
        "description": SUMMARY,
        "version": build.version,
        "repository": {"url": build.owner["repository"], "source": "github"},
        "packages": packages,
    }


def homebrew(build, archives):
    release = f"{build.owner['repository']}/releases/download/v{build.version}"

    def source(name):
        found = archives.get(name)
        if not found:
            return '      odie "there is no build of this release for this machine"'
        file, digest = found
        return f'      url "{release}/{file}"\n      sha256 "{digest}"'

    sources = {key.replace("-", "_"): source(key) for key in PLATFORMS if "windows" not in key}
    return template("longshore.rb", version=build.version, summary=SUMMARY, homepage=build.owner["homepage"], **sources)


def nix(build, archives):
    release = f"{build.owner['repository']}/releases/download/v{build.version}"
    systems = {"x86_64-linux": "x86_64-linux", "aarch64-linux": "aarch64-linux",
               "x86_64-macos": "x86_64-darwin", "aarch64-macos": "aarch64-darwin"}
    rows = []
    for name, system in systems.items():
        if name in archives:
            file, digest = archives[name]
            rows.append(f'        {system} = {{ url = "{release}/{file}"; sha256 = "{digest}"; }};')
    return template("flake.nix", version=build.version, summary=SUMMARY, sources="\n".join(rows))


class Build:
    def __init__(self, names):
        self.version = version_of_project()
        self.owner = names

    def completions(self, program, platform):
        """The shells' completions, from the program itself where it runs on this machine."""
        with tempfile.TemporaryDirectory() as scratch:
            path = pathlib.Path(scratch, platform.program)
            path.write_bytes(program)
            path.chmod(0o755)
            try:
                return {
                    shell: subprocess.run([path, "completions", shell], capture_output=True, check=True).stdout
                    for shell in ("bash", "zsh", "fish")
                }
            except OSError:
                print(f"build.py: {platform.deb}: no completions: the program does not run here", file=sys.stderr)
                return {}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", required=True, type=pathlib.Path, help="folder to write; must be empty or not there")
    parser.add_argument("--release", action="store_true", help="refuse placeholders in owner.json")
    parser.add_argument("programs", nargs="+", metavar="PLATFORM=PATH", help=f"one of {', '.join(PLATFORMS)}")
    options = parser.parse_args()
    programs = {}
    for word in options.programs:
        name, _, path = word.partition("=")
        if name not in PLATFORMS:
            fail(f"{name!r} is not a platform; there are {', '.join(PLATFORMS)}")
        try:
            programs[name] = pathlib.Path(path).read_bytes()
        except OSError as error:
            fail(f"{name}: the program cannot be read: {error}")
    if options.out.exists() and any(options.out.iterdir()):
        fail(f"{options.out} is not empty")
    build = Build(owner(options.release))

    made, archives = [], {}
    for name, program in programs.items():
        platform = PLATFORMS[name]
        file, content = archive(build, platform, name, program)
        archives[name] = (file, hashlib.sha256(content).hexdigest())
        made.append((file, content))
        made.append(npm_platform(build, platform, program))
        made.append(wheel(build, platform, program))
        made.append(mcpb(build, platform, name, program))
        if platform.deb:
            made.append(deb(build, platform, program))
    made.append(npm_main(build, programs))
    sums = "".join(f"{hashlib.sha256(content).hexdigest()}  {pathlib.PurePosixPath(name).name}\n" for name, content in made)
    made += [
        ("server.json", (json.dumps(server_json(build, made), indent=2) + "\n").encode()),
        ("longshore.rb", homebrew(build, archives).encode()),
        ("flake.nix", nix(build, archives).encode()),
        ("install.sh", template("install.sh", version=build.version, repository=build.owner["repository"]).encode()),
        ("SHA256SUMS", sums.encode()),
    ]
    for name, content in made:
        path = options.out / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(content)
        print(f"{len(content):>10}  {path}")


if __name__ == "__main__":
    main()
