#include "src/vgpu/libs/cupti_recorder.h"

#include <gtest/gtest.h>

#include <cstring>
#include <ctime>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <utility>

namespace gpucast::vgpu::cupti {
namespace {

// A clock's activities, and a profiler with buffers.
struct World {
  bool recording = false;
  uint32_t correlation = 0;
  std::vector<Activity> over;
  size_t buffer_bytes = 4096, most_records = 0;
  std::map<uint8_t*, std::unique_ptr<uint64_t[]>> given;
  std::deque<std::pair<std::vector<uint64_t>, size_t>> completed;  // bytes, valid ones
  bool refuses = false;
};
World* world;

int64_t now_ns() {
  timespec now{};
  clock_gettime(CLOCK_REALTIME, &now);
  return int64_t{now.tv_sec} * 1'000'000'000 + now.tv_nsec;
}

void request(uint8_t** buffer, size_t* size_bytes, size_t* most_records) {
  *buffer = nullptr;
  *size_bytes = 0;
  if (world->refuses) return;
  auto memory = std::make_unique<uint64_t[]>(world->buffer_bytes / 8);
  *buffer = reinterpret_cast<uint8_t*>(memory.get());
  *size_bytes = world->buffer_bytes;
  *most_records = world->most_records;
  world->given[*buffer] = std::move(memory);
}

void complete(void*, uint32_t, uint8_t* buffer, size_t size_bytes, size_t valid_bytes) {
  EXPECT_EQ(size_bytes, world->buffer_bytes);
  std::vector<uint64_t> kept(size_bytes / 8);
  std::memcpy(kept.data(), buffer, valid_bytes);
  world->completed.emplace_back(std::move(kept), valid_bytes);
  EXPECT_EQ(world->given.erase(buffer), 1u);
}

class CuptiRecorder : public testing::Test {
 protected:
  CuptiRecorder() {
    world = &world_;
    recorder = std::make_unique<Recorder>(
        Recorder::Source{[](bool on, void (*)(uint32_t)) { world->recording = on; }, [] { return std::exchange(world->over, {}); }, now_ns,
                         [](const void*) { return KernelResources{.registers = 96, .static_shared_bytes = 512}; }},
        nullptr);
    EXPECT_EQ(recorder->register_callbacks(request, complete), kSuccess);
  }

  void TearDown() override {
    for (uint32_t kind = 1; kind < kExternalKinds; ++kind)  // the thread keeps them, and the next test runs in the same thread
      while (recorder->pop_external(kind, nullptr) == kSuccess) continue;
  }

  // One API call and the work it submits.
  uint32_t call(const char* function, std::vector<Activity> asked = {}, bool driver = false) {
    const uint32_t correlation = ++world_.correlation;
    recorder->on_call(correlation);
    Activity own{};
    own.kind = ActivityKind::call;
    own.name = function;
    own.driver = driver;
    own.thread = 4711;
    own.start_ns = now_ns();
    own.end_ns = own.start_ns + 1000;
    asked.insert(asked.begin(), own);
    for (Activity& one : asked) {
      one.correlation = correlation;
      world_.over.push_back(one);
    }
    return correlation;
  }
  static Activity kernel(const char* name, uint64_t graph = 0) {
    Activity one{};
    one.kind = ActivityKind::kernel;
    one.name = name;
    one.start_ns = 1'700'000'000'000'000'000;
    one.end_ns = one.start_ns + 12'345;
    one.device = 1;
    one.stream = 7;
    one.grid[0] = 10, one.grid[1] = 20, one.grid[2] = 30;
    one.block[0] = 128, one.block[1] = 2, one.block[2] = 1;
    one.registers = 40;
    one.static_shared_bytes = 1024, one.dynamic_shared_bytes = 2048;
    one.graph = graph;
    return one;
  }

  void enable(std::initializer_list<uint32_t> kinds, bool on = true) {
    for (const uint32_t kind : kinds) EXPECT_EQ(recorder->enable(kind, on), kSuccess);
  }

  // All records handed over, each as its bytes. Within a buffer they are in the order in which a profiler reads them.
  std::vector<std::vector<uint8_t>> records() {
    std::vector<std::vector<uint8_t>> out;
    for (auto& [bytes, valid] : world_.completed) {
      Record* record = nullptr;
      Result result = kSuccess;
      while ((result = next_record(reinterpret_cast<uint8_t*>(bytes.data()), valid, &record)) == kSuccess) {
        const auto* from = reinterpret_cast<const uint8_t*>(record);
        out.emplace_back(from, from + record_size(record->kind));
      }
      EXPECT_EQ(result, kMaxLimitReached);
    }
    world_.completed.clear();
    return out;
  }
  template <class Record>
  static Record as(const std::vector<uint8_t>& bytes) {
    Record record;
    EXPECT_EQ(bytes.size(), sizeof record);
    std::memcpy(&record, bytes.data(), sizeof record);
    return record;
  }
  static std::vector<uint32_t> kinds_of(const std::vector<std::vector<uint8_t>>& all) {
    std::vector<uint32_t> kinds;
    for (const auto& one : all) kinds.push_back(*reinterpret_cast<const uint32_t*>(one.data()));
    return kinds;
  }

  World world_;
  std::unique_ptr<Recorder> recorder;
};

TEST_F(CuptiRecorder, TellsOfALaunchItsKernelAndItsOperator) {
  enable({kConcurrentKernel, kRuntime, kExternalCorrelation});
  EXPECT_TRUE(world_.recording);
  recorder->push_external(3, 77);
  recorder->push_external(3, 78);
  const uint32_t launch = call("cudaLaunchKernel", {kernel("_Z3addPf")});
  uint64_t popped = 0;
  EXPECT_EQ(recorder->pop_external(3, &popped), kSuccess);
  EXPECT_EQ(popped, 78u);
  recorder->flush(true);

  const auto all = records();
  ASSERT_EQ(kinds_of(all), (std::vector<uint32_t>{kExternalCorrelation, kRuntime, kConcurrentKernel}));
  const auto external = as<ActivityExternalCorrelation>(all[0]);
  EXPECT_EQ(external.externalKind, 3u);
  EXPECT_EQ(external.externalId, 78u);
  EXPECT_EQ(external.correlationId, launch);
  const auto api = as<ActivityApi>(all[1]);
  EXPECT_EQ(api.cbid, 211u);
  EXPECT_EQ(api.threadId, 4711u);
  EXPECT_EQ(api.correlationId, launch);
  EXPECT_EQ(api.end - api.start, 1000u);
  const auto record = as<ActivityKernel>(all[2]);
  EXPECT_STREQ(record.name, "_Z3addPf");
  EXPECT_EQ(record.start, 1'700'000'000'000'000'000u);
  EXPECT_EQ(record.end - record.start, 12'345u);
  EXPECT_EQ(record.deviceId, 1u);
  EXPECT_EQ(record.contextId, 2u);
  EXPECT_EQ(record.streamId, 7u);
  EXPECT_EQ(record.gridZ, 30);
  EXPECT_EQ(record.blockX, 128);
  EXPECT_EQ(record.registersPerThread, 40);
  EXPECT_EQ(record.staticSharedMemory, 1024);
  EXPECT_EQ(record.dynamicSharedMemory, 2048);
  EXPECT_EQ(record.correlationId, launch);
  EXPECT_EQ(record.graphNodeId, 0u);
}

TEST_F(CuptiRecorder, AKernelsCodeSaysWhatTheLaunchDoesNot) {
  enable({kConcurrentKernel});
  Activity one = kernel("k");
  one.function = "handle";
  one.registers = 0;
  call("cudaLaunchKernel", {one, kernel("known")});
  recorder->flush(true);
  const auto all = records();
  ASSERT_EQ(all.size(), 2u);
  EXPECT_EQ(as<ActivityKernel>(all[0]).registersPerThread, 96);
  EXPECT_EQ(as<ActivityKernel>(all[0]).staticSharedMemory, 512);
  EXPECT_EQ(as<ActivityKernel>(all[1]).registersPerThread, 40);
}

TEST_F(CuptiRecorder, OperatorsAreOfTheThreadThatPushedThem) {
  enable({kRuntime, kExternalCorrelation});
  recorder->push_external(3, 1);
  std::thread([&] {
    call("cudaLaunchKernel");
    EXPECT_EQ(recorder->pop_external(3, nullptr), kQueueEmpty);
  }).join();
  recorder->flush(true);
  EXPECT_EQ(kinds_of(records()), (std::vector<uint32_t>{kRuntime}));
  EXPECT_EQ(recorder->pop_external(3, nullptr), kSuccess);
  EXPECT_EQ(recorder->pop_external(3, nullptr), kQueueEmpty);
  EXPECT_EQ(recorder->push_external(kExternalKinds, 1), kInvalidParameter);
}

TEST_F(CuptiRecorder, AnOperatorIsToldOnceThoughItsKernelEndsLater) {
  enable({kConcurrentKernel, kRuntime, kExternalCorrelation});
  recorder->push_external(4, 5);
  const uint32_t launch = call("cudaLaunchKernel");
  recorder->flush(false);
  EXPECT_EQ(kinds_of(records()), (std::vector<uint32_t>{kExternalCorrelation, kRuntime}));
  world_.over.push_back(kernel("late"));
  world_.over.back().correlation = launch;
  recorder->flush(true);
  EXPECT_EQ(kinds_of(records()), (std::vector<uint32_t>{kConcurrentKernel}));
  recorder->pop_external(4, nullptr);
}

TEST_F(CuptiRecorder, OnlyKindsThatWereOnAtTheCall) {
  enable({kRuntime});
  call("cudaLaunchKernel", {kernel("before")});
  enable({kConcurrentKernel});
  enable({kRuntime}, false);
  call("cudaLaunchKernel", {kernel("on")});
  enable({kConcurrentKernel}, false);
  EXPECT_TRUE(world_.recording);  // work submitted earlier may end later
  call("cudaLaunchKernel", {kernel("after")});
  recorder->flush(true);
  EXPECT_FALSE(world_.recording);
  const auto all = records();
  ASSERT_EQ(kinds_of(all), (std::vector<uint32_t>{kRuntime, kConcurrentKernel}));
  EXPECT_STREQ(as<ActivityKernel>(all[1]).name, "on");
}

TEST_F(CuptiRecorder, CopiesFillsAndWaits) {
  enable({kMemcpy, kMemset, kSynchronization, kDriver, kRuntime});
  Activity copy{}, fill{}, wait{};
  copy.kind = ActivityKind::copy;
  copy.copy_kind = 1;
  copy.pinned = true;
  copy.size_bytes = 4096;
  copy.stream = 7;
  fill.kind = ActivityKind::fill;
  fill.size_bytes = 100;
  wait.kind = ActivityKind::wait;
  wait.name = "cudaStreamSynchronize";
  wait.stream = 13;
  wait.correlation = 1000;
  call("cudaMemcpyAsync", {copy});
  call("cuMemsetD8Async", {fill}, true);
  recorder->on_call(1000);
  world_.over.push_back(wait);
  wait.name = "cudaEventSynchronize";
  wait.event = 99;
  wait.correlation = 1001;
  recorder->on_call(1001);
  world_.over.push_back(wait);
  recorder->flush(true);

  const auto all = records();
  ASSERT_EQ(kinds_of(all),
            (std::vector<uint32_t>{kRuntime, kMemcpy, kDriver, kMemset, kRuntime, kSynchronization, kRuntime, kSynchronization}));
  const auto copied = as<ActivityMemcpy>(all[1]);
  EXPECT_EQ(copied.copyKind, kHostToDevice);
  EXPECT_EQ(copied.srcKind, kPinned);
  EXPECT_EQ(copied.dstKind, kDeviceMemory);
  EXPECT_EQ(copied.bytes, 4096u);
  EXPECT_STREQ(function_name(true, as<ActivityApi>(all[2]).cbid), "cuMemsetD8Async");
  EXPECT_EQ(as<ActivityMemset>(all[3]).bytes, 100u);
  EXPECT_EQ(as<ActivitySynchronization>(all[5]).type, kStreamSynchronize);
  EXPECT_EQ(as<ActivitySynchronization>(all[5]).streamId, 13u);
  EXPECT_EQ(as<ActivitySynchronization>(all[7]).type, kEventSynchronize);
  EXPECT_EQ(as<ActivitySynchronization>(all[7]).cudaEventId, 99u);
  EXPECT_EQ(as<ActivitySynchronization>(all[7]).streamId, kNotOfOne);
}

TEST_F(CuptiRecorder, AnEventsStreamIsToldWhereWaitsAre) {
  Activity record{};
  record.kind = ActivityKind::call;
  record.name = "cudaEventRecord";
  record.event = 42;
  record.stream = 20;
  const auto told = [&] {
    record.correlation = ++world_.correlation;
    recorder->on_call(record.correlation);
    world_.over.push_back(record);
    recorder->flush(false);
    return records();
  };
  enable({kRuntime});
  EXPECT_EQ(kinds_of(told()), (std::vector<uint32_t>{kRuntime}));
  enable({kSynchronization});
  const auto all = told();
  ASSERT_EQ(kinds_of(all), (std::vector<uint32_t>{kRuntime, kCudaEvent}));
  EXPECT_EQ(as<ActivityCudaEvent>(all[1]).eventId, 42u);
  EXPECT_EQ(as<ActivityCudaEvent>(all[1]).streamId, 20u);
  EXPECT_EQ(as<ActivityCudaEvent>(all[1]).correlationId, record.correlation);
}

TEST_F(CuptiRecorder, AGraphsKernelsAreItsNodes) {
  enable({kConcurrentKernel, kRuntime});
  const uint32_t launch = call("cudaGraphLaunch", {kernel("a", 3), kernel("b", 3)});
  recorder->flush(true);
  const auto all = records();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_STREQ(function_name(false, as<ActivityApi>(all[0]).cbid), "cudaGraphLaunch_v10000");
  for (uint64_t i = 0; i < 2; ++i) {
    const auto record = as<ActivityKernel>(all[i + 1]);
    EXPECT_EQ(record.correlationId, launch);
    EXPECT_EQ(record.graphId, 3u);
    EXPECT_EQ(record.graphNodeId, uint64_t{3} << 32 | i);
  }
}

TEST_F(CuptiRecorder, BuffersAreFilledOneAfterTheOther) {
  enable({kConcurrentKernel, kRuntime});
  call("cudaLaunchKernel", {kernel("k")});
  EXPECT_EQ(world_.given.size(), 1u);  // at the first call: Kineto reads nothing without a buffer
  for (int i = 1; i < 100; ++i) call("cudaLaunchKernel", {kernel("k")});
  recorder->flush(false);
  EXPECT_GE(world_.completed.size(), 100 * (sizeof(ActivityKernel) + sizeof(ActivityApi)) / 4096);
  EXPECT_EQ(world_.given.size(), 1u);
  for (const auto& [bytes, valid] : world_.completed) {  // a call and its kernel are in one buffer
    EXPECT_EQ(valid % (sizeof(ActivityKernel) + sizeof(ActivityApi)), 0u);
  }
  EXPECT_EQ(records().size(), 200u);

  world_.most_records = 2;
  world_.completed.clear();
  recorder->flush(true);  // the buffer without a limit of records
  EXPECT_TRUE(world_.given.empty());
  world_.completed.clear();
  for (int i = 0; i < 3; ++i) call("cudaLaunchKernel", {kernel("k")});
  recorder->flush(true);
  EXPECT_EQ(world_.completed.size(), 3u);
  EXPECT_EQ(records().size(), 6u);
  EXPECT_EQ(recorder->take_dropped(), 0u);
}

TEST_F(CuptiRecorder, WithoutABufferRecordsAreDroppedAndCounted) {
  enable({kConcurrentKernel, kRuntime});
  world_.refuses = true;
  call("cudaLaunchKernel", {kernel("k")});
  recorder->flush(true);
  EXPECT_TRUE(world_.completed.empty());
  EXPECT_EQ(recorder->take_dropped(), 2u);
  EXPECT_EQ(recorder->take_dropped(), 0u);
}

TEST_F(CuptiRecorder, TimesAreOfTheClockThatWasRegistered) {
  recorder->register_clock([] { return static_cast<uint64_t>(now_ns() / 4 + 1'000'000); });  // ticks of 4 ns
  enable({kConcurrentKernel});
  Activity one = kernel("k");
  one.start_ns = now_ns();
  one.end_ns = one.start_ns + 40'000'000;
  call("cudaLaunchKernel", {one});
  recorder->flush(true);
  const auto all = records();
  ASSERT_EQ(all.size(), 1u);
  const auto record = as<ActivityKernel>(all[0]);
  EXPECT_NEAR(static_cast<double>(record.end - record.start), 10'000'000, 50'000);
  EXPECT_NEAR(static_cast<double>(static_cast<int64_t>(record.start) - (one.start_ns / 4 + 1'000'000)), 0, 10'000);
}

TEST_F(CuptiRecorder, SilentFunctionsHaveNoRecords) {
  enable({kConcurrentKernel, kRuntime});
  recorder->enable_function(false, function_id(false, "cudaMemsetAsync"), false);
  call("cudaMemsetAsync");
  call("cudaLaunchKernel");
  recorder->flush(false);
  EXPECT_EQ(records().size(), 1u);
  recorder->enable_function(false, function_id(false, "cudaMemsetAsync"), true);
  call("cudaMemsetAsync");
  recorder->flush(true);
  EXPECT_EQ(records().size(), 1u);
}

TEST_F(CuptiRecorder, CollectivesHaveTheirKernelsNames) {
  enable({kConcurrentKernel});
  call("cudaLaunchKernel", {kernel("ncclAllReduce"), kernel("nccl_like"), kernel("cublasGemmEx")});
  recorder->flush(true);
  const auto all = records();
  ASSERT_EQ(all.size(), 3u);
  EXPECT_STREQ(as<ActivityKernel>(all[0]).name, "ncclDevKernel_AllReduce");
  EXPECT_STREQ(as<ActivityKernel>(all[1]).name, "nccl_like");
  EXPECT_STREQ(as<ActivityKernel>(all[2]).name, "cublasGemmEx");
}

TEST(CuptiFunctions, AreFoundByTheirApisName) {
  EXPECT_EQ(function_id(false, "cudaLaunchKernel"), 211u);
  EXPECT_EQ(function_id(true, "cuLaunchKernel"), 307u);
  EXPECT_EQ(function_id(false, "cuLaunchKernel"), 0u);
  EXPECT_EQ(function_id(true, "cuMemAlloc"), function_id(true, "cuMemAlloc_v2"));
  EXPECT_STREQ(function_name(false, 211), "cudaLaunchKernel_v7000");
  EXPECT_EQ(function_name(false, 0), nullptr);
  for (const char* name : {"cudaMemcpyAsync", "cudaMemsetAsync", "cudaGraphLaunch", "cudaStreamSynchronize", "cudaEventSynchronize",
                           "cudaDeviceSynchronize", "cudaEventRecord", "cudaStreamWaitEvent"})
    EXPECT_NE(function_id(false, name), 0u) << name;
}

TEST(CuptiRecords, DamagedBuffersEnd) {
  alignas(8) uint8_t buffer[64] = {};
  Record* record = nullptr;
  EXPECT_EQ(next_record(buffer, 0, &record), kMaxLimitReached);
  EXPECT_EQ(next_record(buffer, 64, &record), kInvalidKind);
  const uint32_t kind = kConcurrentKernel;
  std::memcpy(buffer, &kind, sizeof kind);
  EXPECT_EQ(next_record(buffer, 64, &record), kInvalidKind);  // longer than the buffer
  EXPECT_EQ(next_record(nullptr, 64, &record), kInvalidParameter);
}

}  // namespace
}  // namespace gpucast::vgpu::cupti
