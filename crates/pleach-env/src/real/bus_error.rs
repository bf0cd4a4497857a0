//! What keeps a bus error in a mapped file from ending the process.
//!
//! The system sends the signal `SIGBUS` where it has no page for an access to a mapped file: the file was cut, or its device has
//! failed. The handler puts memory of no file under the mapping and marks it as lost. Whoever accessed it asks afterwards
//! ([`Place::is_lost`]), and then uses a system call, whose error is exact.
//!
//! The handler is installed by the first mapping, never when the library is loaded. A bus error that is not ours goes to the
//! handler of before.
//!
//! # Concurrency
//! The handler runs on the thread that accesses the mapping, whose owner therefore does not unmap it. It looks at tables of
//! atomics, and takes no lock. Other threads that read the mapping meanwhile find zeros, and then that it is lost.

#![expect(unsafe_code, reason = "a signal handler, and the memory that it replaces")]

use std::ffi::{c_int, c_void};
use std::ptr;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering, compiler_fence, fence};

/// Where a mapping is in memory, for the handler.
pub(super) struct Place {
    // Immutable.
    /// Of the memory that replaces the file.
    protection: c_int,

    /// Odd while there is a mapping. The handler takes start and length only if this has not changed meanwhile.
    age: AtomicUsize,
    is_taken: AtomicBool,
    start: AtomicUsize,
    len: AtomicUsize,
    /// Whether the system had no page for an access. The mapping then has memory of no file.
    is_lost: AtomicBool,
}

/// Mappings of the process at a time for writes: one for each store that writes. Further stores use system calls.
static WRITTEN: [Place; 128] = [const { Place::free(libc::PROT_READ | libc::PROT_WRITE) }; 128];

/// Mappings of the process at a time for reads: one for each open SST. Further SSTs are read by system calls.
static READ: [Place; 4096] = [const { Place::free(libc::PROT_READ) }; 4096];

impl Place {
    const fn free(protection: c_int) -> Self {
        Self {
            protection,
            age: AtomicUsize::new(0),
            is_taken: AtomicBool::new(false),
            start: AtomicUsize::new(0),
            len: AtomicUsize::new(0),
            is_lost: AtomicBool::new(false),
        }
    }

    /// The place of a mapping for writes; `None` if there is none left.
    pub(super) fn of_written(start: usize, len: usize) -> Option<&'static Self> {
        Self::claim(&WRITTEN, start, len)
    }

    /// The place of a mapping for reads; `None` if there is none left.
    pub(super) fn of_read(start: usize, len: usize) -> Option<&'static Self> {
        Self::claim(&READ, start, len)
    }

    fn claim(places: &'static [Self], start: usize, len: usize) -> Option<&'static Self> {
        let is_free = |place: &&Self| {
            !place.is_taken.load(Ordering::Relaxed) && !place.is_taken.swap(true, Ordering::Acquire)
        };
        let place = places.iter().find(is_free)?;
        place.is_lost.store(false, Ordering::Relaxed);
        // Released, so that who reads one of them sees that the mapping before has left.
        place.start.store(start, Ordering::Release);
        place.len.store(len, Ordering::Release);
        place.age.fetch_add(1, Ordering::Release);
        Some(place)
    }

    /// Before the memory is unmapped.
    pub(super) fn leave(&self) {
        self.age.fetch_add(1, Ordering::AcqRel);
        self.is_taken.store(false, Ordering::Release);
    }

    /// Whether an access met a bus error, or [`Place::lose`] was called. Asked behind the accesses of this thread: the handler
    /// ran in the middle of one, or on another thread before one has met its memory.
    #[inline]
    pub(super) fn is_lost(&self) -> bool {
        compiler_fence(Ordering::SeqCst);
        fence(Ordering::Acquire);
        self.is_lost.load(Ordering::Relaxed)
    }

    /// Marks the mapping as lost.
    pub(super) fn lose(&self) {
        self.is_lost.store(true, Ordering::Relaxed);
    }

    /// Puts memory of no file under the mapping if `address` is in it. For the handler, on the thread that accesses the address.
    fn replace(&self, address: usize) -> bool {
        let Some((start, len)) = self.range() else { return false };
        if address.wrapping_sub(start) >= len {
            return false;
        }
        self.is_lost.store(true, Ordering::SeqCst);
        // SAFETY: the interrupted thread is using the mapping at this address, so its owner keeps it, and the place, meanwhile.
        // The range is that of one mapping; it replaces nothing else.
        let replaced = unsafe {
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS | libc::MAP_FIXED;
            libc::mmap(ptr::without_provenance_mut(start), len, self.protection, flags, -1, 0)
        };
        replaced != libc::MAP_FAILED
    }

    /// Start and length of the mapping; `None` if there is none, or it changes at this moment.
    fn range(&self) -> Option<(usize, usize)> {
        let age = self.age.load(Ordering::Acquire);
        let range = (self.start.load(Ordering::Relaxed), self.len.load(Ordering::Relaxed));
        fence(Ordering::Acquire);
        (age % 2 == 1 && self.age.load(Ordering::Relaxed) == age).then_some(range)
    }
}

/// What handled the signal before.
static BEFORE: OnceLock<libc::sigaction> = OnceLock::new();

/// Installs the handler once; returns whether it is there.
pub(super) fn handler_is_there() -> bool {
    static INSTALLED: OnceLock<bool> = OnceLock::new();
    *INSTALLED.get_or_init(|| {
        // SAFETY: both structures are plain data, for which zeros are valid; the handler keeps the rules of `on_bus_error`.
        unsafe {
            let mut before: libc::sigaction = std::mem::zeroed();
            if libc::sigaction(libc::SIGBUS, ptr::null(), &raw mut before) != 0 {
                return false;
            }
            // Set before the handler can run.
            BEFORE.get_or_init(|| before);
            stay_loaded();
            let mut ours: libc::sigaction = std::mem::zeroed();
            ours.sa_sigaction = on_bus_error as *const () as usize;
            // What the handler of before relied on holds for it as well.
            ours.sa_flags =
                libc::SA_SIGINFO | libc::SA_ONSTACK | before.sa_flags & (libc::SA_NODEFER | libc::SA_RESTART);
            ours.sa_mask = before.sa_mask;
            libc::sigaction(libc::SIGBUS, &raw const ours, ptr::null_mut()) == 0
        }
    })
}

/// Keeps the library that holds the handler in memory, if a program should unload it. Best effort.
fn stay_loaded() {
    // SAFETY: the structure is plain data, for which zeros are valid; `dladdr` fills it with a name that lives as long as the
    // library, and `dlopen` loads nothing with these flags.
    unsafe {
        let mut here: libc::Dl_info = std::mem::zeroed();
        if libc::dladdr(on_bus_error as *const c_void, &raw mut here) != 0 && !here.dli_fname.is_null() {
            let _for_ever =
                libc::dlopen(here.dli_fname, libc::RTLD_LAZY | libc::RTLD_NOLOAD | libc::RTLD_NODELETE);
        }
    }
}

/// Puts memory of no file under an access of ours; everything else goes to the handler of before.
///
/// Takes no lock and no memory. `mmap` is a plain system call.
extern "C" fn on_bus_error(signal: c_int, info: *mut libc::siginfo_t, context: *mut c_void) {
    // SAFETY: the kernel gives a valid structure.
    let is_sent = unsafe { (*info).si_code } <= 0;
    if !is_sent {
        // SAFETY: a bus error that was not sent by a process has an address.
        let address = unsafe { (*info).si_addr() }.addr();
        if WRITTEN.iter().chain(&READ).any(|place| place.replace(address)) {
            return;
        }
    }
    pass_on(signal, is_sent, info, context);
}

/// Calls the handler of before. If there was none, the access is repeated, or the signal sent again, and ends the process.
fn pass_on(signal: c_int, is_sent: bool, info: *mut libc::siginfo_t, context: *mut c_void) {
    let Some(before) = BEFORE.get() else { return };
    // SAFETY: `sigaction` said that the address is a handler of the kind that the flag tells.
    unsafe {
        match before.sa_sigaction {
            libc::SIG_IGN if is_sent => {}
            libc::SIG_IGN | libc::SIG_DFL => {
                libc::signal(signal, libc::SIG_DFL);
                if is_sent {
                    libc::raise(signal);
                }
            }
            handler if before.sa_flags & libc::SA_SIGINFO != 0 => {
                let handler: extern "C" fn(c_int, *mut libc::siginfo_t, *mut c_void) =
                    std::mem::transmute(handler);
                handler(signal, info, context);
            }
            handler => {
                let handler: extern "C" fn(c_int) = std::mem::transmute(handler);
                handler(signal);
            }
        }
    }
}
