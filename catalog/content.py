"""What the catalogue says: shapes in columns, and for every region its zones, offered types and prices.

Nothing here reads a clock or depends on the order of a set, so the same sources give the same bytes.
"""

import collections
import statistics

import sources

# Regions that have prices but no list of what each zone offers: every priced type is taken to be offered in all zones.
# The zones are those that AWS documents; cn-north-1 comes from moto's own table.
ASSUMED_ZONES = {
    "ap-southeast-7": "apse7",
    "mx-central-1": "mxc1",
    "us-gov-east-1": "usge1",
    "us-gov-west-1": "usgw1",
}
# What spot saves where nothing at all is known, in percent: the median over all types and regions of the price list.
DEFAULT_SPOT_SAVING = 66
# The region that has a price for nearly every type; estimates for other regions start from it.
REFERENCE_REGION = "us-east-1"


def kubernetes_architecture(shape):
    known = {"x86_64": "amd64", "arm64": "arm64"}
    return next((known[a] for a in shape["ProcessorInfo"]["SupportedArchitectures"] if a in known), None)


def usable(shape):
    """As Karpenter's AWS provider asks EC2: hardware virtualisation, and x86_64 or arm64 (so no Mac)."""
    return "hvm" in shape["SupportedVirtualizationTypes"] and kubernetes_architecture(shape) is not None


def kebab(text):
    return text.lower().replace(" ", "-")


def shapes(raw, branch_interfaces, bandwidth):
    """Columns over the sorted type names, and sparse rows for what few types have."""
    names = sorted(name for name, shape in raw.items() if usable(shape))
    rows = [raw[name] for name in names]

    def column(get):
        return [get(row) for row in rows]

    def where(test):
        return [index for index, row in enumerate(rows) if test(row)]

    def default_card(row):
        return row["NetworkInfo"]["NetworkCards"][row["NetworkInfo"]["DefaultNetworkCardIndex"]]

    def ebs_mbps(row):
        ebs = row["EbsInfo"]
        return ebs["EbsOptimizedInfo"]["MaximumBandwidthInMbps"] if ebs["EbsOptimizedSupport"] == "default" else 0

    def nvme_gb(row):
        storage = row.get("InstanceStorageInfo", {"NvmeSupport": "unsupported"})
        return storage["TotalSizeInGB"] if storage["NvmeSupport"] != "unsupported" else 0

    gpus, accelerators, neurons = [], [], []
    for index, row in enumerate(rows):
        for gpu in row.get("GpuInfo", {}).get("Gpus", []):
            memory = gpu["MemoryInfo"]["SizeInMiB"]
            gpus.append([index, kebab(gpu["Name"]), kebab(gpu["Manufacturer"]), gpu["Count"], memory])
        for device in row.get("NeuronInfo", {}).get("NeuronDevices", []):
            neurons.append([index, kebab(device["Name"]), device["Count"], device["CoreInfo"]["Count"]])
        if "NeuronInfo" not in row:
            for device in row.get("InferenceAcceleratorInfo", {}).get("Accelerators", []):
                accelerators.append([index, kebab(device["Name"]), kebab(device["Manufacturer"]), device["Count"]])
    for table in (gpus, accelerators, neurons):
        if len({row[0] for row in table}) != len(table):
            sources.fail("a type has two kinds of accelerators; the format has room for one")

    return {
        "name": names,
        "architecture": column(kubernetes_architecture),
        "cpu": column(lambda r: r["VCpuInfo"]["DefaultVCpus"]),
        "cpuManufacturer": column(lambda r: kebab(r["ProcessorInfo"]["Manufacturer"])),
        "clockMhz": column(lambda r: round(r["ProcessorInfo"].get("SustainedClockSpeedInGhz", 0) * 1000)),
        "memoryMib": column(lambda r: r["MemoryInfo"]["SizeInMiB"]),
        "networkInterfaces": column(lambda r: default_card(r)["MaximumNetworkInterfaces"]),
        "addressesPerInterface": column(lambda r: r["NetworkInfo"]["Ipv4AddressesPerInterface"]),
        "branchInterfaces": [branch_interfaces.get(name, 0) for name in names],
        "efaInterfaces": column(lambda r: r["NetworkInfo"].get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)),
        "networkMbps": [bandwidth.get(name, 0) for name in names],
        "ebsMbps": column(ebs_mbps),
        "nvmeGb": column(nvme_gb),
        "hypervisor": column(lambda r: r.get("Hypervisor", "")),
        "bareMetal": where(lambda r: r["BareMetal"]),
        "burstable": where(lambda r: r["BurstablePerformanceSupported"]),
        "encryptionInTransit": where(lambda r: r["NetworkInfo"]["EncryptionInTransitSupported"]),
        "hibernation": where(lambda r: r["HibernationSupported"]),
        "previousGeneration": where(lambda r: not r["CurrentGeneration"]),
        "onDemand": where(lambda r: "on-demand" in r["SupportedUsageClasses"]),
        "spot": where(lambda r: "spot" in r["SupportedUsageClasses"]),
        "gpus": gpus,
        "accelerators": accelerators,
        "neurons": neurons,
    }


def zone_ids(moto, region):
    """Zone → zone id. Both lists come from one account, so the zone and its id offer the same set of types."""
    by_name, by_id = moto.offered(region, "availability-zone"), moto.offered(region, "availability-zone-id")
    left, found = sorted(by_id), {}
    for zone in sorted(by_name):
        match = next((i for i in left if by_id[i] == by_name[zone]), None)
        if match is None:
            sources.fail(f"no zone id of {region} offers the types of {zone}")
        left.remove(match)
        found[zone] = match
    return found


def category(name):
    """c for c7g.large: prices of one category differ between regions by nearly the same factor."""
    return name[0]


class Estimates:
    """Fills gaps from what the region's other types say, category by category, then over the whole region."""

    def __init__(self, known):
        groups = collections.defaultdict(list)
        for name, value in known.items():
            groups[category(name)].append(value)
        self.by_category = {key: statistics.median(values) for key, values in groups.items()}
        self.overall = statistics.median(known.values()) if known else None

    def get(self, name):
        return self.by_category.get(category(name), self.overall)


def region(names, zones, offered, prices, savings, reference):
    """One region: columns over its offered types. A price is None where no source helps."""
    ratios = Estimates({n: p / reference[n] for n, p in prices.items() if n in reference})
    typical_saving = Estimates(savings)
    columns = {"type": [], "zones": [], "price": [], "spotSaving": [], "estimated": []}
    for index, name in enumerate(names):
        mask = sum(1 << bit for bit, zone in enumerate(zones) if name in offered[zone])
        if not mask:
            continue
        price = prices.get(name)
        if price is None and name in reference and ratios.get(name) is not None:
            price = round(reference[name] * ratios.get(name), 5)
            columns["estimated"].append(len(columns["type"]))
        saving = savings.get(name, typical_saving.get(name))
        columns["type"].append(index)
        columns["zones"].append(mask)
        columns["price"].append(price)
        columns["spotSaving"].append(DEFAULT_SPOT_SAVING if saving is None else round(saving))
    return columns


def catalogue():
    moto, provider, price_list = sources.Moto(), sources.Provider(), sources.PriceList()
    types = shapes(moto.shapes(), provider.branch_interfaces(), provider.bandwidth())
    names = types["name"]
    own_prices = provider.prices()
    list_prices, savings = price_list.prices()
    reference = own_prices[REFERENCE_REGION][1]

    regions = {}
    for name in sorted({*moto.regions(), *own_prices, *ASSUMED_ZONES}):
        date, prices = own_prices.get(name, (sources.PRICES["date"], list_prices.get(name, {})))
        assumed = name not in moto.regions()
        if not assumed:
            zones = zone_ids(moto, name)
            offered = moto.offered(name, "availability-zone")
        else:
            zones = moto.zone_table().get(name) or {
                f"{name}{letter}": f"{ASSUMED_ZONES[name]}-az{n}" for n, letter in enumerate("abc", 1)
            }
            offered = {zone: prices for zone in zones}
        # A currency other than the dollar cannot be compared with the reference region.
        dollars = not name.startswith("cn-")
        regions[name] = {
            "currency": "USD" if dollars else "CNY",
            "priceDate": date,
            "zonesAssumed": assumed,
            "zoneNames": list(zones),
            "zoneIds": list(zones.values()),
            **region(names, zones, offered, prices, savings.get(name, {}), reference if dollars else {}),
        }
    used = [sources.MOTO, sources.PROVIDER, sources.PRICES]
    return {
        "format": 1,
        "sources": [
            {
                "name": pin.get("module") or f"{pin['package']} (PyPI)",
                **{key: pin[key] for key in ("version", "date", "licence", "gives")},
            }
            for pin in used
        ],
        "types": types,
        "regions": regions,
    }
