//! A refusal as tonic's status.

use tonic::metadata::MetadataValue;
use tonic::{Code, Status};

use crate::refusal::{self, Refusal};
use crate::reply::grpc;

/// Converts a refusal into the status that [`GrpcStatus`](crate::GrpcStatus) answers with. A refusal whose cause only
/// the operator can fix is logged as an error. Needs the feature `tonic`.
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
