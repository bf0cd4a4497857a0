//! Which threads may use a handle: C's compiler checks nothing, so ours checks what the documents promise.
//!
//! ```
//! struct Handle(u32);
//! const _: () = pleach_ffi::assert_shared::<Handle>();
//! ```

/// Compiles only if any number of threads may use a value of the type at the same time.
pub const fn assert_shared<T: Send + Sync>() {}

/// Compiles only if any thread may use a value of the type, one at a time.
///
/// ```compile_fail
/// const _: () = pleach_ffi::assert_movable::<*const u32>();
/// ```
pub const fn assert_movable<T: Send>() {}
