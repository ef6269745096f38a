//! Which instance types the objects are held against.

use std::collections::BTreeSet;
use std::path::PathBuf;

use anyhow::{Context, Result, bail};
use clap::Args;
use veneer_api::Provider;
use veneer_engine::catalogue::{aws, kwok};
use veneer_engine::instance_type::Catalogue;
use veneer_engine::labels;

use super::objects::Objects;

const DEFAULT_REGION: &str = "us-east-1";
const KWOK_GROUP: &str = "karpenter.kwok.sh";

/// Where instance types come from.
#[derive(Debug, Args)]
pub(crate) struct CatalogueArgs {
    /// Reads instance types from FILE (the JSON of Karpenter's KWOK provider)
    #[arg(long, value_name = "FILE", conflicts_with = "region")]
    catalog: Option<PathBuf>,

    /// Region of the embedded AWS catalogue; by default the one that the NodePools or node classes name, else us-east-1
    #[arg(long, value_name = "REGION")]
    region: Option<String>,
}

/// A catalogue, and what to know about it.
pub(crate) struct Source {
    pub(crate) catalogue: Catalogue,
    pub(crate) notes: Vec<String>,
}

impl CatalogueArgs {
    /// The provider whose instance types these are.
    pub(crate) fn provider(&self) -> Provider {
        match self.catalog {
            Some(_) => Provider::Kwok,
            None => Provider::Ec2,
        }
    }

    /// The instance types that `objects` are about.
    pub(crate) fn load(&self, objects: &Objects) -> Result<Source> {
        match &self.catalog {
            Some(path) => {
                let origin = path.display().to_string();
                let text = std::fs::read_to_string(path)
                    .with_context(|| format!("cannot read the catalogue {origin}"))?;
                let catalogue = kwok::parse(&text, &origin)?;
                if catalogue.types.is_empty() {
                    bail!("the catalogue {origin} has no instance types, so there is nothing to evaluate");
                }
                Ok(Source {
                    catalogue,
                    notes: Vec::new(),
                })
            }
            None => self.embedded(objects),
        }
    }

    fn embedded(&self, objects: &Objects) -> Result<Source> {
        let of_kwok = |pool: &&super::objects::Sourced<veneer_api::NodePool>| {
            pool.object.spec.template.spec.node_class_ref.group == KWOK_GROUP
        };
        if let Some(pool) = objects.node_pools.iter().find(of_kwok) {
            bail!(
                "NodePool {} uses Karpenter's KWOK provider ({KWOK_GROUP}), whose instance types are not embedded; \
                 give them with --catalog FILE (the provider's instance_types.json)",
                pool.name()
            );
        }
        let mut notes = Vec::new();
        let region = match &self.region {
            Some(region) => region.clone(),
            None => {
                let named: Vec<String> = regions(objects)?.into_iter().collect();
                match named.as_slice() {
                    [region] => region.clone(),
                    [] => {
                        notes.push(format!(
                            "no region is given or named by a NodePool; taking {DEFAULT_REGION} (--region)"
                        ));
                        DEFAULT_REGION.to_owned()
                    }
                    several => bail!(
                        "the objects name several regions ({}); choose one with --region",
                        several.join(", ")
                    ),
                }
            }
        };
        let loaded = aws::region(&region).context("--region")?;
        notes.push(format!(
            "prices of {region} from {}; spot prices are estimates",
            loaded.region.price_date
        ));
        Ok(Source {
            catalogue: loaded.catalogue,
            notes,
        })
    }
}

/// The regions that NodePools, node classes and nodes name, as far as the embedded catalogue knows them.
fn regions(objects: &Objects) -> Result<BTreeSet<String>> {
    let requirements = objects
        .node_pools
        .iter()
        .flat_map(|pool| &pool.object.spec.template.spec.requirements);
    let required = requirements.filter(|requirement| {
        let key = labels::normalise(&requirement.key);
        requirement.operator.as_str() == "In" && (key == labels::REGION || key == labels::ZONE)
    });
    let classes = objects
        .ec2_node_classes
        .iter()
        .flat_map(|class| &class.object.status);
    let subnets = classes
        .flat_map(|status| &status.subnets)
        .map(|subnet| &subnet.zone);
    let nodes = objects.cluster.iter().flat_map(|cluster| &cluster.nodes);
    let nodes = nodes.filter_map(|node| node.object.metadata.labels.as_ref()?.get(labels::REGION));
    let named: BTreeSet<&String> = required
        .flat_map(|requirement| &requirement.values)
        .chain(subnets)
        .chain(nodes)
        .collect();
    if named.is_empty() {
        return Ok(BTreeSet::new());
    }
    let known = aws::regions()?;
    // A zone's name begins with its region's: `us-east-1` of `us-east-1a` and of `us-east-1-bos-1a`.
    let region_of = |name: &&String| {
        let regions = known.iter().filter(|region| name.starts_with(region.as_str()));
        regions.max_by_key(|region| region.len()).cloned()
    };
    Ok(named.iter().filter_map(region_of).collect())
}
