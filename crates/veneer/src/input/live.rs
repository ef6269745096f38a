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

/// Lists NodePools, NodeOverlays, Overprovisioners and node classes; into objects with a cluster, its kinds too.
pub(super) fn load(
    context: Option<&str>,
    kubeconfig: Option<&Path>,
    mut objects: Objects,
) -> Result<Objects> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot start the client's runtime")?;
    runtime.block_on(async {
        let config = config(context, kubeconfig).await?;
        let origin = Origin {
            file: format!("cluster {}", config.cluster_url),
            tree: None,
        };
        let client =
            Client::try_from(config).with_context(|| format!("cannot use the kubeconfig; {GIVE_FILES}"))?;
        let own = [
            ApiResource::erase::<NodePool>(&()),
            ApiResource::erase::<NodeOverlay>(&()),
            ApiResource::erase::<Overprovisioner>(&()),
            ApiResource::erase::<EC2NodeClass>(&()),
            ApiResource::erase::<KWOKNodeClass>(&()),
        ];
        let of_cluster = objects.cluster.as_ref().map(|_| Cluster::live_resources());
        for resource in own.into_iter().chain(of_cluster.into_iter().flatten()) {
            list(&client, &resource, &origin, &mut objects).await?;
        }
        Ok(objects)
    })
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

/// Lists one kind, page by page. A cluster that does not know the kind has none; an object that cannot be read is
/// reported and hides no other.
async fn list(client: &Client, resource: &ApiResource, origin: &Origin, objects: &mut Objects) -> Result<()> {
    let api: Api<DynamicObject> = Api::all_with(client.clone(), resource);
    let first = ListParams::default().limit(PAGE);
    let mut page = first.clone();
    let mut items = Vec::new();
    loop {
        let list = match api.list(&page).await {
            Ok(list) => list,
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(()),
            // The server forgets old pages; a list that is not in pages is never too old.
            Err(kube::Error::Api(status)) if status.code == 410 && page.continue_token.is_some() => {
                items.clear();
                page = ListParams::default();
                continue;
            }
            Err(error) => {
                let message = format!("cannot list {} of {}; {GIVE_FILES}", resource.plural, origin.file);
                return Err(anyhow::Error::new(error).context(message));
            }
        };
        items.extend(list.items);
        match list.metadata.continue_.filter(|token| !token.is_empty()) {
            Some(token) => page = first.clone().continue_token(&token),
            None => break,
        }
    }
    for object in items {
        let value =
            serde_json::to_value(&object).with_context(|| format!("cannot read a {}", resource.kind))?;
        documents::read_value(&resource.kind, &resource.api_version, value, origin, objects);
    }
    Ok(())
}
