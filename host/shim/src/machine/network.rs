//! The network of a pod in the VM.

use super::{Booted, volumes::on_host};
use crate::{
    error::{Error, Result},
    network::Connection,
};
use std::{path::Path, sync::Arc};

/// Connects a pod with the network namespace that was made for it. Nothing if that has no address.
pub(super) async fn connect(booted: &Arc<Booted>, path: &Path) -> Result<Option<Connection>> {
    let failed = |error: &dyn std::fmt::Display| {
        let place = path.display();
        Error::failed(format_args!("cannot connect the pod's network namespace {place}: {error}"))
    };
    let (networks, namespace) = (booted.networks.clone(), path.to_owned());
    let connected = on_host(move || networks.connect(&namespace)).await;
    let Some(connection) = connected.map_err(|error| failed(&error))? else { return Ok(None) };
    let agent = booted.vm.agent()?;
    match agent.add_network(connection.number(), connection.network()).await {
        Ok(()) => Ok(Some(connection)),
        Err(error) => {
            disconnect(booted, connection).await;
            Err(failed(&error))
        }
    }
}

/// Ends a pod's connection. Its device is free again if the guest has nobody at it any more.
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
