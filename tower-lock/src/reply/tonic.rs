//! A refusal as tonic's status.

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::refusal::{self, Refusal};
use crate::reply::grpc;

/// As [`GrpcStatus`](crate::GrpcStatus) answers. What no client can mend is told to the log, as an error. Needs the
/// feature `tonic`.
impl From<Refusal> for Status {
    fn from(refusal: Refusal) -> Status {
        refusal::log(&refusal);
        let code = Code::from_i32(grpc::code(refusal.kind()).into());
        let mut status = Status::new(code, refusal.detail());
        if let Some(millis) = refusal.pushback_millis() {
            let key = tonic::metadata::MetadataKey::from_static(grpc::PUSHBACK);
            status
                .metadata_mut()
                .insert(key, MetadataValue::from(millis));
        }
        status
    }
}
