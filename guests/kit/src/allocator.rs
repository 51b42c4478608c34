//! The allocator of components that are called for every request. A call makes some hundred small allocations and frees
//! them again. Small blocks are kept in lists by their size, so to allocate or free one takes few instructions. Larger
//! blocks, and the chunks that small blocks are made of, come from the standard library's allocator.
//!
//! The memory of small blocks is used again for blocks of the same size only. So a component holds the sum of what it
//! used of each size at one time, and one that works in phases on long documents needs less with the standard library's
//! allocator.
//!
//! The C library frees lists that it gets from WASI, such as the variables of the environment, with its own `free`, but
//! they are made by this allocator. So a component with this allocator must get no variables, arguments and folders,
//! as is so in this host, and must contain no C code that asks WASI for random bytes.

use std::alloc::{GlobalAlloc, Layout, System};
use std::cell::Cell;
use std::ptr::{copy_nonoverlapping, null_mut};

/// The sizes of small blocks are multiples of this, and they are aligned to it.
const STEP_BYTES: usize = 16;
/// The largest small block.
const SMALL_BYTES_MAX: usize = 1 << 10;
/// How much memory is taken at once, to make small blocks of it.
const CHUNK_BYTES: usize = 8 << 10;
const CHUNK: Layout = match Layout::from_size_align(CHUNK_BYTES, STEP_BYTES) {
    Ok(layout) => layout,
    Err(_) => panic!("the layout is valid"),
};

/// A free block begins with the address of the next one of its list.
struct FreeBlock {
    next: *mut FreeBlock,
}

/// The blocks of one thread.
pub(crate) struct Allocator {
    /// The free blocks, by their size in steps. No block has the size 0.
    free: [Cell<*mut FreeBlock>; SMALL_BYTES_MAX / STEP_BYTES + 1],
    /// The unused end of the last chunk.
    rest: Cell<*mut u8>,
    rest_bytes: Cell<usize>,
}

impl Allocator {
    pub(crate) const fn new() -> Self {
        let free = [const { Cell::new(null_mut()) }; SMALL_BYTES_MAX / STEP_BYTES + 1];
        Self { free, rest: Cell::new(null_mut()), rest_bytes: Cell::new(0) }
    }

    /// The list of the blocks for this layout; `None` if it is not a small one.
    fn list(&self, layout: Layout) -> Option<&Cell<*mut FreeBlock>> {
        if layout.align() > STEP_BYTES { None } else { self.free.get(layout.size().div_ceil(STEP_BYTES)) }
    }

    /// Makes a small block of unused memory. Null if there is none.
    ///
    /// # Safety
    ///
    /// `bytes` is the size of a small block and not 0.
    #[cold]
    unsafe fn make(&self, bytes: usize) -> *mut u8 {
        let bytes = bytes.next_multiple_of(STEP_BYTES);
        if self.rest_bytes.get() < bytes {
            // SAFETY: the size of a chunk is not 0.
            let chunk = unsafe { System.alloc(CHUNK) };
            if chunk.is_null() {
                return chunk;
            }
            if let Some(list) = self.free.get(self.rest_bytes.get() / STEP_BYTES)
                && self.rest_bytes.get() > 0
            {
                // SAFETY: the rest is a small block that nothing uses.
                unsafe { push(list, self.rest.get()) };
            }
            self.rest.set(chunk);
            self.rest_bytes.set(CHUNK_BYTES);
        }
        let block = self.rest.get();
        // SAFETY: the rest has at least so many bytes.
        self.rest.set(unsafe { block.add(bytes) });
        self.rest_bytes.set(self.rest_bytes.get() - bytes);
        block
    }
}

/// Adds a block to a list of free ones.
///
/// # Safety
///
/// The block has the size of the list, came from the allocator, and nothing uses it.
unsafe fn push(list: &Cell<*mut FreeBlock>, block: *mut u8) {
    // Blocks are aligned to 16 bytes.
    let block = block.cast::<FreeBlock>();
    // SAFETY: the smallest block has room for an address.
    unsafe { block.write(FreeBlock { next: list.get() }) };
    list.set(block);
}

// SAFETY: a block is handed out by its list once until it is freed, and has at least the size and alignment of its layout.
// A layout that is not small is passed on as it is, and whether it is small depends on nothing else than the layout.
unsafe impl GlobalAlloc for Allocator {
    #[inline]
    unsafe fn alloc(&self, layout: Layout) -> *mut u8 {
        let Some(list) = self.list(layout) else {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc(layout) };
        };
        let block = list.get();
        if block.is_null() {
            // SAFETY: there is a list for it, so it is small.
            return unsafe { self.make(layout.size()) };
        }
        // SAFETY: a block in a list is free and begins with the address of the next one.
        list.set(unsafe { (*block).next });
        block.cast()
    }

    #[inline]
    unsafe fn dealloc(&self, block: *mut u8, layout: Layout) {
        match self.list(layout) {
            // SAFETY: the block was made for this layout, and the caller does not use it any more.
            Some(list) => unsafe { push(list, block) },
            // SAFETY: it was passed on when it was allocated.
            None => unsafe { System.dealloc(block, layout) },
        }
    }

    unsafe fn alloc_zeroed(&self, layout: Layout) -> *mut u8 {
        if self.list(layout).is_none() {
            // SAFETY: as the caller promises.
            return unsafe { System.alloc_zeroed(layout) };
        }
        // SAFETY: as the caller promises.
        let block = unsafe { self.alloc(layout) };
        if !block.is_null() {
            // SAFETY: the block has at least so many bytes.
            unsafe { block.write_bytes(0, layout.size()) };
        }
        block
    }

    unsafe fn realloc(&self, block: *mut u8, layout: Layout, bytes: usize) -> *mut u8 {
        // SAFETY: the caller promises that the new size is valid with this alignment.
        let new_layout = unsafe { Layout::from_size_align_unchecked(bytes, layout.align()) };
        match (self.list(layout), self.list(new_layout)) {
            // SAFETY: it was passed on when it was allocated.
            (None, None) => return unsafe { System.realloc(block, layout, bytes) },
            (Some(list), Some(new_list)) if std::ptr::eq(list, new_list) => return block,
            _ => {}
        }
        // SAFETY: as the caller promises.
        let new_block = unsafe { self.alloc(new_layout) };
        if !new_block.is_null() {
            // SAFETY: both have at least so many bytes, and they are different blocks.
            unsafe { copy_nonoverlapping(block, new_block, layout.size().min(bytes)) };
            // SAFETY: the caller uses the new block from now on.
            unsafe { self.dealloc(block, layout) };
        }
        new_block
    }
}

#[cfg(target_family = "wasm")]
#[global_allocator]
static ALLOCATOR: Allocator = Allocator::new();

#[cfg(all(target_family = "wasm", target_feature = "atomics"))]
compile_error!("the allocator is for components with one thread");

// SAFETY: a component has one thread, because the host refuses threads and shared memory.
#[cfg(target_family = "wasm")]
unsafe impl Sync for Allocator {}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// What a program does with its memory, and with which of its blocks.
    #[derive(Clone, Debug)]
    enum Action {
        Allocate { layout: Layout, zeroed: bool },
        Resize { block: usize, bytes: usize },
        Free { block: usize },
    }

    /// A block in use, and the byte with which it is filled.
    struct Block {
        start: *mut u8,
        layout: Layout,
        fill: u8,
    }

    impl Block {
        fn bytes(&self) -> &[u8] {
            // SAFETY: the block is in use, and filled as a whole.
            unsafe { std::slice::from_raw_parts(self.start, self.layout.size()) }
        }

        fn fill(&mut self) {
            // SAFETY: the block has so many bytes.
            unsafe { self.start.write_bytes(self.fill, self.layout.size()) };
        }
    }

    fn sizes() -> impl Strategy<Value = usize> {
        prop_oneof![8 => 1..=200_usize, 2 => 1000..1100_usize, 1 => 1..=40_000_usize]
    }

    fn actions() -> impl Strategy<Value = Action> {
        let layouts = (sizes(), 0..=6_u32)
            .prop_map(|(size, power)| Layout::from_size_align(size, 1 << power).expect("a layout"));
        prop_oneof![
            4 => (layouts, any::<bool>()).prop_map(|(layout, zeroed)| Action::Allocate { layout, zeroed }),
            2 => (any::<usize>(), sizes()).prop_map(|(block, bytes)| Action::Resize { block, bytes }),
            3 => any::<usize>().prop_map(|block| Action::Free { block }),
        ]
    }

    fn allocate(allocator: &Allocator, layout: Layout, zeroed: bool, fill: u8) -> Block {
        // SAFETY: the size is not 0.
        let start = unsafe { if zeroed { allocator.alloc_zeroed(layout) } else { allocator.alloc(layout) } };
        assert!(!start.is_null() && start.addr().is_multiple_of(layout.align()), "{layout:?}");
        let mut block = Block { start, layout, fill };
        if zeroed {
            assert!(block.bytes().iter().all(|byte| *byte == 0), "{layout:?}");
        }
        block.fill();
        block
    }

    fn free(allocator: &Allocator, block: Block) {
        assert!(
            block.bytes().iter().all(|byte| *byte == block.fill),
            "another block was written over this one"
        );
        // SAFETY: the block was allocated with this layout and is not used any more.
        unsafe { allocator.dealloc(block.start, block.layout) };
    }

    proptest! {
        #[test]
        fn blocks_keep_their_content_and_never_overlap(actions in prop::collection::vec(actions(), 1..400)) {
            let allocator = Allocator::new();
            let mut blocks: Vec<Block> = Vec::new();
            for (number, action) in actions.into_iter().enumerate() {
                let fill = (number % 255) as u8 + 1;
                match action {
                    Action::Allocate { layout, zeroed } => blocks.push(allocate(&allocator, layout, zeroed, fill)),
                    Action::Resize { block, bytes } if !blocks.is_empty() => {
                        let index = block % blocks.len();
                        let old = blocks.swap_remove(index);
                        // SAFETY: the block is in use and was allocated with this layout.
                        let start = unsafe { allocator.realloc(old.start, old.layout, bytes) };
                        let layout = Layout::from_size_align(bytes, old.layout.align()).expect("a layout");
                        prop_assert!(!start.is_null() && start.addr().is_multiple_of(layout.align()));
                        let kept = old.layout.size().min(bytes);
                        // SAFETY: the block has so many bytes, and they were filled.
                        let content = unsafe { std::slice::from_raw_parts(start, kept) };
                        prop_assert!(content.iter().all(|byte| *byte == old.fill));
                        let mut block = Block { start, layout, fill };
                        block.fill();
                        blocks.push(block);
                    }
                    Action::Free { block } if !blocks.is_empty() => {
                        let index = block % blocks.len();
                        free(&allocator, blocks.swap_remove(index));
                    }
                    Action::Resize { .. } | Action::Free { .. } => {}
                }
            }
            for block in blocks {
                free(&allocator, block);
            }
        }
    }

    #[test]
    fn a_freed_block_is_the_next_one_of_its_size() {
        let allocator = Allocator::new();
        let layout = Layout::from_size_align(100, 8).expect("a layout");
        let first = allocate(&allocator, layout, false, 1);
        let address = first.start.addr();
        free(&allocator, first);
        let second = allocate(&allocator, Layout::from_size_align(112, 16).expect("a layout"), false, 2);
        assert_eq!(second.start.addr(), address);
        free(&allocator, second);
    }

    #[test]
    fn the_end_of_a_chunk_becomes_a_block() {
        let allocator = Allocator::new();
        let make = |size| {
            let block = allocate(&allocator, Layout::from_size_align(size, 16).expect("a layout"), false, 1);
            block.start.addr()
        };
        let first = make(1_024);
        for _ in 0..6 {
            make(1_024);
        }
        // 1,024 bytes of the chunk are left; then 16, the size of the smallest block.
        let last = make(1_008);
        assert_eq!(last, first + 7 * 1_024);
        make(1_024);
        assert_eq!(make(16), last + 1_008);
    }
}
