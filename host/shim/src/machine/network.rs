//! The network of a pod in the VM.

use super::{Booted, volumes::on_host};
use crate::{
    error::{Error, ErrorKind, Result},
    network::{Connection, Traffic},
    spec::Pod,
};
use std::{io, path::Path, sync::Arc};

/// Connects a pod with the network namespace that was made for it, and sees its traffic if it is to be frozen without.
/// Nothing if it has no network.
pub(super) async fn connect(
    booted: &Arc<Booted>,
    pod: &Pod,
) -> Result<(Option<Connection>, Option<Traffic>)> {
    let connected = match &pod.network {
        Some(path) => connect_with(booted, path, pod.freeze.is_some()).await?,
        None => None,
    };
    match connected {
        Some((connection, traffic)) => Ok((Some(connection), traffic)),
        None if pod.freeze.is_some() => Err(Error::invalid(
            "the pod has no network, by which it could be seen that it has nothing to do: leave out the annotation \
             dev.squeezy/freeze-after",
        )),
        None => Ok((None, None)),
    }
}

async fn connect_with(
    booted: &Arc<Booted>,
    path: &Path,
    listens: bool,
) -> Result<Option<(Connection, Option<Traffic>)>> {
    let failed = |error: &dyn std::fmt::Display| {
        let place = path.display();
        Error::failed(format_args!("cannot connect the pod's network namespace {place}: {error}"))
    };
    let (networks, namespace) = (booted.networks.clone(), path.to_owned());
    let connected = on_host(move || {
        let connection = networks.connect(&namespace)?;
        Ok(connection.map(|connection| (listens.then(|| connection.listen()), connection)))
    });
    let connected = connected.await.map_err(|error| match error.kind() {
        // There is one for each place, and so one is lost.
        io::ErrorKind::QuotaExceeded => Error::new(ErrorKind::Crowded, error),
        _ => failed(&error),
    })?;
    let Some((listening, connection)) = connected else { return Ok(None) };
    let added = async {
        let traffic = listening.map(|listening| listening.and_then(Traffic::of)).transpose();
        let traffic = traffic.map_err(|error| failed(&error))?;
        let added = booted.vm.agent()?.add_network(connection.number(), connection.network());
        added.await.map_err(|error| failed(&error))?;
        Ok(traffic)
    };
    match added.await {
        Ok(traffic) => Ok(Some((connection, traffic))),
        Err(error) => {
            disconnect(booted, connection).await;
            Err(error)
        }
    }
}

/// Ends a pod's connection. Its device is free again if the guest has nobody at it any more, and is lost otherwise.
pub(super) async fn disconnect(booted: &Booted, connection: Connection) {
    let number = connection.number();
    let removed = match booted.vm.agent() {
        Ok(agent) => agent.remove_network(number).await,
        Err(error) => Err(error),
    };
    let networks = booted.networks.clone();
    let ended = on_host(move || networks.disconnect(connection)).await;
    if let Err(error) = &ended {
        tracing::warn!("network {number}: {error}");
    }
    match removed {
        Ok(()) => booted.networks.give_back(number),
        Err(error) => tracing::error!("network {number}: {error}"),
    }
}
