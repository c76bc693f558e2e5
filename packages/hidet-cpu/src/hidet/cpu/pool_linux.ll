; The thread pool on Linux. `pool_code.py` describes the protocol, and puts constants in place of names in dollar braces.
; Futex operations are FUTEX_WAIT_BITSET and FUTEX_WAKE_BITSET with FUTEX_PRIVATE_FLAG (linux/futex.h): 9 and 10, plus
; 128. The set lets a region with few chunks wake just the threads that own one.

declare ${PAUSE_DECLARATION}
declare i64 @syscall(i64, ...)
declare i32 @sched_yield()
declare i32 @pthread_create(ptr, ptr, ptr, ptr)
declare i32 @pthread_attr_init(ptr)
declare i32 @pthread_attr_setdetachstate(ptr, i32)
declare i32 @pthread_attr_setstacksize(ptr, i64)

define internal void @sleep_while_equal(ptr %word, i32 %value, i32 %set) nounwind noinline {
  %unused = call i64 (i64, ...) @syscall(i64 ${FUTEX}, ptr %word, i64 137, i32 %value, ptr null, ptr null, i32 %set)
  ret void
}

define internal void @wake_all(ptr %word, i32 %set) nounwind noinline {
  %unused = call i64 (i64, ...) @syscall(i64 ${FUTEX}, ptr %word, i64 138, i32 ${MOST}, ptr null, ptr null, i32 %set)
  ret void
}

; Bits 0 to %count - 1; bit 31 stands for that and all higher indices.
define internal i32 @lowest_bits(i32 %count) nounwind alwaysinline {
  %are_all = icmp ugt i32 %count, 31
  %shift = and i32 %count, 31
  %power = shl i32 1, %shift
  %bits = sub i32 %power, 1
  %set = select i1 %are_all, i32 -1, i32 %bits
  ret i32 %set
}

define internal void @rest(i32 %spins) nounwind alwaysinline {
  call ${PAUSE_CALL}
  %phase = and i32 %spins, ${YIELD_MASK}
  %is_last = icmp eq i32 %phase, ${YIELD_MASK}
  br i1 %is_last, label %yield, label %done
yield:
  %unused = call i32 @sched_yield()
  br label %done
done:
  ret void
}

define internal void @run_chunks(ptr %pool, i64 %index) nounwind noinline {
entry:
  %fn.p = getelementptr i8, ptr %pool, i64 ${FN}
  %args.p = getelementptr i8, ptr %pool, i64 ${ARGS}
  %quotient.p = getelementptr i8, ptr %pool, i64 ${QUOTIENT}
  %remainder.p = getelementptr i8, ptr %pool, i64 ${REMAINDER}
  %chunks.p = getelementptr i8, ptr %pool, i64 ${CHUNKS_PER_OWNER}
  %owners.p = getelementptr i8, ptr %pool, i64 ${OWNERS}
  %fn = load ptr, ptr %fn.p
  %args = load ptr, ptr %args.p
  %quotient = load i64, ptr %quotient.p
  %remainder = load i64, ptr %remainder.p
  %chunks = load i64, ptr %chunks.p
  %owners = load i64, ptr %owners.p
  %slots = getelementptr i8, ptr %pool, i64 ${SLOTS}
  %is_owner = icmp ult i64 %index, %owners
  %first = select i1 %is_owner, i64 %index, i64 0
  br label %visit
visit:
  %victim = phi i64 [ %first, %entry ], [ %next_victim, %exhausted ]
  %left = phi i64 [ %owners, %entry ], [ %fewer, %exhausted ]
  %offset = mul i64 %victim, ${SLOT_SIZE}
  %next.p = getelementptr i8, ptr %slots, i64 %offset
  %base = mul i64 %victim, %chunks
  br label %look
look:
  %seen = load atomic i64, ptr %next.p monotonic, align 8
  %may_have = icmp ult i64 %seen, %chunks
  br i1 %may_have, label %take, label %exhausted
take:
  %taken = atomicrmw add ptr %next.p, i64 1 monotonic
  %got = icmp ult i64 %taken, %chunks
  br i1 %got, label %run, label %exhausted
run:
  %chunk = add i64 %base, %taken
  %whole = mul i64 %chunk, %quotient
  %has_extra = icmp ult i64 %chunk, %remainder
  %extra_before = select i1 %has_extra, i64 %chunk, i64 %remainder
  %begin = add i64 %whole, %extra_before
  %extra = zext i1 %has_extra to i64
  %size = add i64 %quotient, %extra
  %end = add i64 %begin, %size
  call void %fn(ptr %args, i64 %begin, i64 %end)
  br label %look
exhausted:
  %following = add i64 %victim, 1
  %wraps = icmp eq i64 %following, %owners
  %next_victim = select i1 %wraps, i64 0, i64 %following
  %fewer = add i64 %left, -1
  %more = icmp ne i64 %fewer, 0
  br i1 %more, label %visit, label %done
done:
  ret void
}

define internal ptr @worker(ptr %slot) nounwind noinline {
entry:
  %pool.p = getelementptr i8, ptr %slot, i64 ${SLOT_POOL}
  %index.p = getelementptr i8, ptr %slot, i64 ${SLOT_INDEX}
  %seen.p = getelementptr i8, ptr %slot, i64 ${SLOT_SEEN}
  %mask_bytes.p = getelementptr i8, ptr %slot, i64 ${SLOT_MASK_BYTES}
  %mask = getelementptr i8, ptr %slot, i64 ${SLOT_MASK}
  %pool = load ptr, ptr %pool.p
  %index.32 = load i32, ptr %index.p
  %index = zext i32 %index.32 to i64
  %seen.0 = load i32, ptr %seen.p
  %mask_bytes = load i64, ptr %mask_bytes.p
  %generation.p = getelementptr i8, ptr %pool, i64 ${GENERATION}
  %state.p = getelementptr i8, ptr %pool, i64 ${STATE}
  %sleepers.p = getelementptr i8, ptr %pool, i64 ${SLEEPERS}
  %spin.p = getelementptr i8, ptr %pool, i64 ${SPIN}
  %limit = load i32, ptr %spin.p
  %owners.p = getelementptr i8, ptr %pool, i64 ${OWNERS}
  %is_high = icmp ugt i32 %index.32, 31
  %position = select i1 %is_high, i32 31, i32 %index.32
  %bit = shl i32 1, %position
  %is_pinned = icmp ne i64 %mask_bytes, 0
  br i1 %is_pinned, label %pin, label %idle
pin:
  %unused = call i64 (i64, ...) @syscall(i64 ${SCHED_SETAFFINITY}, i64 0, i64 %mask_bytes, ptr %mask)
  br label %idle
idle:
  %seen = phi i32 [ %seen.0, %entry ], [ %seen.0, %pin ], [ %generation, %look ], [ %generation, %enter ], [ %generation, %left ], [ %generation, %wake_caller ]
  br label %watch
watch:
  %spins = phi i32 [ 0, %idle ], [ %spins.1, %spin ], [ %limit, %asleep ]
  %generation = load atomic i32, ptr %generation.p acquire, align 4
  %is_new = icmp ne i32 %generation, %seen
  br i1 %is_new, label %look, label %wait
wait:
  %is_over = icmp uge i32 %spins, %limit
  br i1 %is_over, label %asleep, label %spin
spin:
  call void @rest(i32 %spins)
  %spins.1 = add i32 %spins, 1
  br label %watch
asleep:
  %before = atomicrmw add ptr %sleepers.p, i32 1 seq_cst
  call void @sleep_while_equal(ptr %generation.p, i32 %seen, i32 %bit)
  %after = atomicrmw sub ptr %sleepers.p, i32 1 seq_cst
  br label %watch
look:
  ; Who owns no chunk stays out, since the caller waits for everybody inside. A stale count does no harm.
  %owners = load atomic i64, ptr %owners.p monotonic, align 8
  %is_owner = icmp ult i64 %index, %owners
  br i1 %is_owner, label %inspect, label %idle
inspect:
  %state.0 = load atomic i32, ptr %state.p monotonic, align 4
  br label %enter
enter:
  %state = phi i32 [ %state.0, %inspect ], [ %state.1, %try ]
  %open = and i32 %state, ${OPEN}
  %is_open = icmp ne i32 %open, 0
  br i1 %is_open, label %try, label %idle
try:
  %raised = add i32 %state, 1
  %exchange = cmpxchg weak ptr %state.p, i32 %state, i32 %raised acquire monotonic
  %state.1 = extractvalue { i32, i1 } %exchange, 0
  %entered = extractvalue { i32, i1 } %exchange, 1
  br i1 %entered, label %inside, label %enter
inside:
  call void @run_chunks(ptr %pool, i64 %index)
  br label %left
left:
  %old = atomicrmw sub ptr %state.p, i32 1 acq_rel
  %is_last_awaited = icmp eq i32 %old, ${WAITING_FOR_LAST}
  br i1 %is_last_awaited, label %wake_caller, label %idle
wake_caller:
  call void @wake_all(ptr %state.p, i32 -1)
  br label %idle
}

; A thread that cannot be created is not missed: the others take over its chunks.
define internal void @start_workers(ptr %pool, i32 %threads) nounwind noinline cold {
entry:
  %attributes = alloca [128 x i8], align 16
  %thread = alloca i64, align 8
  %started.p = getelementptr i8, ptr %pool, i64 ${STARTED}
  store i32 1, ptr %started.p
  %generation.p = getelementptr i8, ptr %pool, i64 ${GENERATION}
  %generation = load atomic i32, ptr %generation.p monotonic, align 4
  %unused.0 = call i32 @pthread_attr_init(ptr %attributes)
  %unused.1 = call i32 @pthread_attr_setdetachstate(ptr %attributes, i32 1)
  %unused.2 = call i32 @pthread_attr_setstacksize(ptr %attributes, i64 ${STACK_BYTES})
  br label %create
create:
  %index = phi i32 [ 1, %entry ], [ %next, %create ]
  %index.64 = zext i32 %index to i64
  %scaled = mul i64 %index.64, ${SLOT_SIZE}
  %offset = add i64 %scaled, ${SLOTS}
  %slot = getelementptr i8, ptr %pool, i64 %offset
  %pool.p = getelementptr i8, ptr %slot, i64 ${SLOT_POOL}
  %index.p = getelementptr i8, ptr %slot, i64 ${SLOT_INDEX}
  %seen.p = getelementptr i8, ptr %slot, i64 ${SLOT_SEEN}
  store ptr %pool, ptr %pool.p
  store i32 %index, ptr %index.p
  store i32 %generation, ptr %seen.p
  %unused.3 = call i32 @pthread_create(ptr %thread, ptr %attributes, ptr @worker, ptr %slot)
  %next = add i32 %index, 1
  %more = icmp ult i32 %next, %threads
  br i1 %more, label %create, label %done
done:
  ret void
}

define void @${PARALLEL}(ptr %pool, ptr %fn, ptr %args, i64 %count) nounwind {
entry:
  %is_many = icmp sgt i64 %count, 1
  %has_pool = icmp ne ptr %pool, null
  %may_share = and i1 %is_many, %has_pool
  br i1 %may_share, label %check, label %alone
alone:
  %some = icmp sgt i64 %count, 0
  br i1 %some, label %run_alone, label %return
run_alone:
  call void %fn(ptr %args, i64 0, i64 %count)
  br label %return
return:
  ret void

check:
  %threads.p = getelementptr i8, ptr %pool, i64 ${NUM_THREADS}
  %owner.p = getelementptr i8, ptr %pool, i64 ${OWNER}
  %threads = load i32, ptr %threads.p
  %has_workers = icmp ugt i32 %threads, 1
  br i1 %has_workers, label %peek, label %run_alone
peek:
  %owner = load atomic i32, ptr %owner.p monotonic, align 4
  %is_free = icmp eq i32 %owner, 0
  br i1 %is_free, label %acquire, label %run_alone
acquire:
  %exchange = cmpxchg ptr %owner.p, i32 0, i32 1 acquire monotonic
  %acquired = extractvalue { i32, i1 } %exchange, 1
  br i1 %acquired, label %mine, label %run_alone
mine:
  %started.p = getelementptr i8, ptr %pool, i64 ${STARTED}
  %started = load i32, ptr %started.p
  %is_started = icmp ne i32 %started, 0
  br i1 %is_started, label %describe, label %start
start:
  call void @start_workers(ptr %pool, i32 %threads)
  br label %describe

describe:
  %threads.64 = zext i32 %threads to i64
  %per_thread = udiv i64 %count, %threads.64
  %is_short = icmp eq i64 %per_thread, 0
  %is_long = icmp ugt i64 %per_thread, ${MAX_CHUNKS_PER_THREAD}
  %capped = select i1 %is_long, i64 ${MAX_CHUNKS_PER_THREAD}, i64 %per_thread
  %chunks = select i1 %is_short, i64 1, i64 %capped
  %owners = select i1 %is_short, i64 %count, i64 %threads.64
  %total = mul i64 %owners, %chunks
  %quotient = udiv i64 %count, %total
  %covered = mul i64 %quotient, %total
  %remainder = sub i64 %count, %covered
  %fn.p = getelementptr i8, ptr %pool, i64 ${FN}
  %args.p = getelementptr i8, ptr %pool, i64 ${ARGS}
  %quotient.p = getelementptr i8, ptr %pool, i64 ${QUOTIENT}
  %remainder.p = getelementptr i8, ptr %pool, i64 ${REMAINDER}
  %chunks.p = getelementptr i8, ptr %pool, i64 ${CHUNKS_PER_OWNER}
  %owners.p = getelementptr i8, ptr %pool, i64 ${OWNERS}
  store ptr %fn, ptr %fn.p
  store ptr %args, ptr %args.p
  store i64 %quotient, ptr %quotient.p
  store i64 %remainder, ptr %remainder.p
  store i64 %chunks, ptr %chunks.p
  store atomic i64 %owners, ptr %owners.p monotonic, align 8
  br label %reset
reset:
  %index = phi i64 [ 0, %describe ], [ %index.1, %reset ]
  %scaled = mul i64 %index, ${SLOT_SIZE}
  %offset = add i64 %scaled, ${SLOTS}
  %next.p = getelementptr i8, ptr %pool, i64 %offset
  store atomic i64 0, ptr %next.p monotonic, align 8
  %index.1 = add i64 %index, 1
  %more = icmp ult i64 %index.1, %owners
  br i1 %more, label %reset, label %open

open:
  %state.p = getelementptr i8, ptr %pool, i64 ${STATE}
  %generation.p = getelementptr i8, ptr %pool, i64 ${GENERATION}
  %sleepers.p = getelementptr i8, ptr %pool, i64 ${SLEEPERS}
  store atomic i32 ${OPEN}, ptr %state.p release, align 4
  %unused = atomicrmw add ptr %generation.p, i32 1 seq_cst
  %sleepers = load atomic i32, ptr %sleepers.p seq_cst, align 4
  %has_sleepers = icmp ne i32 %sleepers, 0
  br i1 %has_sleepers, label %wake_workers, label %work
wake_workers:
  %owners.32 = trunc i64 %owners to i32
  %set = call i32 @lowest_bits(i32 %owners.32)
  call void @wake_all(ptr %generation.p, i32 %set)
  br label %work
work:
  call void @run_chunks(ptr %pool, i64 0)
  %old = atomicrmw and ptr %state.p, i32 ${NOT_OPEN} acq_rel
  %is_empty = icmp eq i32 %old, ${OPEN}
  br i1 %is_empty, label %release, label %join.enter

join.enter:
  %spin.p = getelementptr i8, ptr %pool, i64 ${SPIN}
  %limit = load i32, ptr %spin.p
  br label %join
join:
  %spins = phi i32 [ 0, %join.enter ], [ %spins.1, %join.spin ]
  %state = load atomic i32, ptr %state.p acquire, align 4
  %is_left = icmp eq i32 %state, 0
  br i1 %is_left, label %release, label %join.more
join.more:
  %is_over = icmp uge i32 %spins, %limit
  br i1 %is_over, label %announce, label %join.spin
join.spin:
  call void @rest(i32 %spins)
  %spins.1 = add i32 %spins, 1
  br label %join
announce:
  %unannounced = atomicrmw or ptr %state.p, i32 ${WAITING} acq_rel
  %announced = or i32 %unannounced, ${WAITING}
  br label %sleep
sleep:
  %current = phi i32 [ %announced, %announce ], [ %woken, %asleep ]
  %is_last = icmp eq i32 %current, ${WAITING}
  br i1 %is_last, label %withdraw, label %asleep
asleep:
  call void @sleep_while_equal(ptr %state.p, i32 %current, i32 -1)
  %woken = load atomic i32, ptr %state.p acquire, align 4
  br label %sleep
withdraw:
  store atomic i32 0, ptr %state.p monotonic, align 4
  br label %release
release:
  store atomic i32 0, ptr %owner.p release, align 4
  ret void
}

define void @${PAUSE}(i64 %count) nounwind {
entry:
  br label %loop
loop:
  %done = phi i64 [ 0, %entry ], [ %done.1, %loop ]
  call void @rest(i32 0)
  %done.1 = add i64 %done, 1
  %more = icmp ult i64 %done.1, %count
  br i1 %more, label %loop, label %return
return:
  ret void
}
