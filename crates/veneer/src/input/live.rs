//! Objects of a live cluster, through the kubeconfig. Read only.

use std::path::Path;

use anyhow::{Context, Result};
use kube::api::{Api, ApiResource, DynamicObject, ListParams};
use kube::config::{KubeConfigOptions, Kubeconfig};
use kube::{Client, Config};
use veneer_api::{EC2NodeClass, KWOKNodeClass, NodeOverlay, NodePool, Overprovisioner};

use super::cluster::Cluster;
use super::documents;
use super::objects::{Objects, Origin};

const GIVE_FILES: &str = "to work without a cluster, give files with -f PATH";

/// How many objects a page of a list has; what kubectl asks for.
const PAGE: u32 = 500;

/// A step of reading a cluster.
pub(crate) enum Page<'a> {
    /// A kind begins.
    Begin(&'a ApiResource),
    /// Some of its objects. After the server has forgotten a page, all of them come again.
    Items(&'a ApiResource, Vec<DynamicObject>),
    /// The kind is over.
    End,
}

/// Lists NodePools, NodeOverlays, Overprovisioners and node classes; into objects with a cluster, its kinds too.
pub(super) fn load(
    context: Option<&str>,
    kubeconfig: Option<&Path>,
    mut objects: Objects,
) -> Result<Objects> {
    block_on(async {
        let (client, place) = connect(context, kubeconfig).await?;
        let origin = Origin {
            file: place,
            tree: None,
            made_of: None,
        };
        let kinds = own().into_iter();
        let of_cluster = objects.cluster.as_ref().map(|_| Cluster::live_resources());
        for resource in kinds.chain(of_cluster.into_iter().flatten()) {
            let mut all: Vec<DynamicObject> = Vec::new();
            list(&client, &resource, &origin.file, &mut |items, is_again| {
                if is_again {
                    all.clear();
                }
                all.extend(items);
                Ok(())
            })
            .await?;
            for object in all {
                let value = serde_json::to_value(&object)
                    .with_context(|| format!("cannot read a {}", resource.kind))?;
                documents::read_value(
                    &resource.kind,
                    &resource.api_version,
                    value,
                    &origin,
                    &mut objects,
                );
            }
        }
        Ok(objects)
    })
}

/// Hands over every object that commands read, page by page.
pub(crate) fn stream(
    context: Option<&str>,
    kubeconfig: Option<&Path>,
    take: &mut dyn FnMut(Page<'_>) -> Result<()>,
) -> Result<()> {
    block_on(async {
        let (client, place) = connect(context, kubeconfig).await?;
        for resource in own().into_iter().chain(Cluster::live_resources()) {
            let mut has_begun = false;
            list(&client, &resource, &place, &mut |items, _| {
                if !std::mem::replace(&mut has_begun, true) {
                    take(Page::Begin(&resource))?;
                }
                take(Page::Items(&resource, items))
            })
            .await?;
            if has_begun {
                take(Page::End)?;
            }
        }
        Ok(())
    })
}

fn block_on<T>(work: impl Future<Output = Result<T>>) -> Result<T> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the client's runtime")?;
    runtime.block_on(work)
}

/// The kinds that every command reads.
fn own() -> [ApiResource; 5] {
    [
        ApiResource::erase::<NodePool>(&()),
        ApiResource::erase::<NodeOverlay>(&()),
        ApiResource::erase::<Overprovisioner>(&()),
        ApiResource::erase::<EC2NodeClass>(&()),
        ApiResource::erase::<KWOKNodeClass>(&()),
    ]
}

/// A client, and what the cluster is called in messages.
async fn connect(context: Option<&str>, kubeconfig: Option<&Path>) -> Result<(Client, String)> {
    let config = config(context, kubeconfig).await?;
    let place = format!("cluster {}", config.cluster_url);
    let client =
        Client::try_from(config).with_context(|| format!("cannot use the kubeconfig; {GIVE_FILES}"))?;
    Ok((client, place))
}

async fn config(context: Option<&str>, kubeconfig: Option<&Path>) -> Result<Config> {
    let options = KubeConfigOptions {
        context: context.map(str::to_owned),
        ..KubeConfigOptions::default()
    };
    let config = match kubeconfig {
        Some(path) => {
            let kubeconfig = Kubeconfig::read_from(path)
                .with_context(|| format!("cannot read the kubeconfig {}", path.display()))?;
            Config::from_custom_kubeconfig(kubeconfig, &options)
                .await
                .map_err(anyhow::Error::new)
        }
        None if context.is_some() => Config::from_kubeconfig(&options)
            .await
            .map_err(anyhow::Error::new),
        None => Config::infer().await.map_err(anyhow::Error::new),
    };
    config.with_context(|| {
        format!("found no cluster; {GIVE_FILES}, or a kubeconfig with --kubeconfig or KUBECONFIG")
    })
}

/// Lists one kind, page by page; `take` is told where the list begins again. A cluster that does not know the kind has
/// none.
async fn list(
    client: &Client,
    resource: &ApiResource,
    place: &str,
    take: &mut dyn FnMut(Vec<DynamicObject>, bool) -> Result<()>,
) -> Result<()> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let first = ListParams::default().limit(PAGE);
    let mut page = first.clone();
    let mut is_again = false;
    loop {
        let list = match api.list(&page).await {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            // The server forgets old pages; a list that is not in pages is never too old.
            Err(kube::Error::Api(status)) if status.code == 410 && page.continue_token.is_some() => {
                page = ListParams::default();
                is_again = true;
                continue;
            }
            Err(error) => {
                let message = format!("cannot list {} of {place}; {GIVE_FILES}", resource.plural);
                return Err(anyhow::Error::new(error).context(message));
            }
        };
        take(list.items, std::mem::take(&mut is_again))?;
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = first.clone().continue_token(&token),
            None => return Ok(()),
        }
    }
}
