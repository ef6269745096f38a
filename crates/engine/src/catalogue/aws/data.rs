//! The embedded file as `catalog/generate` writes it: columns over the sorted instance type names, then one object
//! per region. Only the region that is asked for is parsed.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::value::RawValue;

/// The layout that this reader knows.
const FORMAT: u32 = 1;

/// Compressed with zlib.
const PACKED: &[u8] = include_bytes!("../../../../../catalog/data/aws.json.zz");

/// A guard against a damaged length field; the real text has about half a megabyte.
const MAX_BYTES: usize = 16 << 20;

/// Unpacks the file.
pub(super) fn unpack() -> Result<String, String> {
    let bytes = miniz_oxide::inflate::decompress_to_vec_zlib_with_limit(PACKED, MAX_BYTES)
        .map_err(|error| error.to_string())?;
    String::from_utf8(bytes).map_err(|error| error.to_string())
}

#[derive(Deserialize)]
pub(super) struct File<'a> {
    format: u32,
    pub(super) sources: Vec<Source>,
    #[serde(borrow)]
    pub(super) types: Types<'a>,
    #[serde(borrow)]
    pub(super) regions: BTreeMap<&'a str, &'a RawValue>,
}

/// A package that the catalogue was built from.
#[derive(Clone, Debug, Deserialize, PartialEq, Eq)]
pub struct Source {
    /// The package's name in its registry.
    pub name: String,
    /// The package's version.
    pub version: String,
    /// The date of its data.
    pub date: String,
    /// Its licence.
    pub licence: String,
    /// What was taken from it.
    pub gives: String,
}

/// Columns over all types. The last ones are sparse: sorted positions, or rows that begin with a position.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct Types<'a> {
    #[serde(borrow)]
    pub(super) name: Vec<&'a str>,
    architecture: Vec<&'a str>,
    cpu: Vec<i64>,
    cpu_manufacturer: Vec<&'a str>,
    clock_mhz: Vec<i64>,
    memory_mib: Vec<i64>,
    network_interfaces: Vec<i64>,
    addresses_per_interface: Vec<i64>,
    branch_interfaces: Vec<i64>,
    efa_interfaces: Vec<i64>,
    network_mbps: Vec<i64>,
    ebs_mbps: Vec<i64>,
    nvme_gb: Vec<i64>,
    hypervisor: Vec<&'a str>,
    bare_metal: Vec<usize>,
    burstable: Vec<usize>,
    encryption_in_transit: Vec<usize>,
    hibernation: Vec<usize>,
    previous_generation: Vec<usize>,
    on_demand: Vec<usize>,
    spot: Vec<usize>,
    /// Type, name, manufacturer, count, memory in MiB.
    gpus: Vec<(usize, &'a str, &'a str, i64, i64)>,
    /// Type, name, manufacturer, count.
    accelerators: Vec<(usize, &'a str, &'a str, i64)>,
    /// Type, name, count, cores of each.
    neurons: Vec<(usize, &'a str, i64, i64)>,
}

/// Columns over the types that one region offers.
#[derive(Deserialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct RegionColumns<'a> {
    pub(super) currency: &'a str,
    pub(super) price_date: &'a str,
    pub(super) zones_assumed: bool,
    #[serde(borrow)]
    pub(super) zone_names: Vec<&'a str>,
    pub(super) zone_ids: Vec<&'a str>,
    /// Position in the columns of all types.
    pub(super) r#type: Vec<usize>,
    /// Bit `n` is set if zone `n` offers the type.
    pub(super) zones: Vec<u32>,
    pub(super) price: Vec<Option<f64>>,
    /// What spot is thought to save, in percent.
    pub(super) spot_saving: Vec<u8>,
    /// Positions in these columns whose price is an estimate.
    pub(super) estimated: Vec<usize>,
}

/// Everything about one type.
pub(super) struct Shape<'a> {
    pub(super) name: &'a str,
    pub(super) architecture: &'a str,
    pub(super) cpu: i64,
    pub(super) cpu_manufacturer: &'a str,
    pub(super) clock_mhz: i64,
    pub(super) memory_mib: i64,
    pub(super) network_interfaces: i64,
    pub(super) addresses_per_interface: i64,
    pub(super) branch_interfaces: i64,
    pub(super) efa_interfaces: i64,
    pub(super) network_mbps: i64,
    pub(super) ebs_mbps: i64,
    pub(super) nvme_gb: i64,
    pub(super) hypervisor: &'a str,
    pub(super) bare_metal: bool,
    pub(super) burstable: bool,
    pub(super) encryption_in_transit: bool,
    pub(super) hibernation: bool,
    pub(super) current_generation: bool,
    pub(super) on_demand: bool,
    pub(super) spot: bool,
    pub(super) gpu: Option<Device<'a>>,
    pub(super) accelerator: Option<Device<'a>>,
    pub(super) neuron: Option<Device<'a>>,
}

/// A kind of accelerator in a machine.
pub(super) struct Device<'a> {
    pub(super) name: &'a str,
    pub(super) manufacturer: &'a str,
    pub(super) count: i64,
    /// Memory in MiB of a GPU; cores of a Neuron device.
    pub(super) size: i64,
}

impl<'a> File<'a> {
    pub(super) fn parse(text: &'a str) -> Result<Self, String> {
        let file: Self = serde_json::from_str(text).map_err(|error| error.to_string())?;
        if file.format != FORMAT {
            return Err(format!("format {} instead of {FORMAT}", file.format));
        }
        Ok(file)
    }
}

impl<'a> Types<'a> {
    /// The type at `index`; `None` if a column is too short.
    pub(super) fn shape(&self, index: usize) -> Option<Shape<'a>> {
        let has = |positions: &[usize]| positions.binary_search(&index).is_ok();
        Some(Shape {
            name: self.name.get(index)?,
            architecture: self.architecture.get(index)?,
            cpu: *self.cpu.get(index)?,
            cpu_manufacturer: self.cpu_manufacturer.get(index)?,
            clock_mhz: *self.clock_mhz.get(index)?,
            memory_mib: *self.memory_mib.get(index)?,
            network_interfaces: *self.network_interfaces.get(index)?,
            addresses_per_interface: *self.addresses_per_interface.get(index)?,
            branch_interfaces: *self.branch_interfaces.get(index)?,
            efa_interfaces: *self.efa_interfaces.get(index)?,
            network_mbps: *self.network_mbps.get(index)?,
            ebs_mbps: *self.ebs_mbps.get(index)?,
            nvme_gb: *self.nvme_gb.get(index)?,
            hypervisor: self.hypervisor.get(index)?,
            bare_metal: has(&self.bare_metal),
            burstable: has(&self.burstable),
            encryption_in_transit: has(&self.encryption_in_transit),
            hibernation: has(&self.hibernation),
            current_generation: !has(&self.previous_generation),
            on_demand: has(&self.on_demand),
            spot: has(&self.spot),
            gpu: row(&self.gpus, index, |row| row.0).map(|&(_, name, manufacturer, count, size)| Device {
                name,
                manufacturer,
                count,
                size,
            }),
            accelerator: row(&self.accelerators, index, |row| row.0).map(
                |&(_, name, manufacturer, count)| Device {
                    name,
                    manufacturer,
                    count,
                    size: 0,
                },
            ),
            neuron: row(&self.neurons, index, |row| row.0).map(|&(_, name, count, size)| Device {
                name,
                manufacturer: "aws",
                count,
                size,
            }),
        })
    }
}

fn row<T>(rows: &[T], index: usize, key: impl Fn(&T) -> usize) -> Option<&T> {
    rows.binary_search_by_key(&index, key)
        .ok()
        .and_then(|at| rows.get(at))
}
