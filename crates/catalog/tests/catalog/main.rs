//! The laws of the catalog, through its public face.

mod checkpoints;
mod concurrency;
mod damage;
mod events;
mod files;
mod records;
mod resolve;
mod rollbacks;
mod speed;
mod transactions;
