//! What the tests share: servers, a fault proxy, a second process, the overlap checker.
