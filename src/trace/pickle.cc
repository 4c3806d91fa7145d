#include "src/trace/pickle.h"

#include <fcntl.h>
#include <fmt/core.h>
#include <sys/stat.h>
#include <unistd.h>
#include <zlib.h>

#include <algorithm>
#include <array>
#include <bit>
#include <cerrno>
#include <cstring>
#include <utility>

#include "gpucast/error.h"

namespace gpucast {
namespace {

using Kind = PickleValue::Kind;

constexpr size_t kPickleBufferBytes = 256 << 10;
constexpr size_t kMostDepth = 10'000;  // open marks
constexpr size_t kMostName = 200;      // of a refused object's name in a message
constexpr uint64_t kMostText = 16 << 20;

// Python's pickletools has the same names.
enum Op : uint8_t {
  MARK = '(',
  STOP = '.',
  POP = '0',
  POP_MARK = '1',
  BININT = 'J',
  BININT1 = 'K',
  BININT2 = 'M',
  NONE = 'N',
  BINFLOAT = 'G',
  BINSTRING = 'T',
  SHORT_BINSTRING = 'U',
  BINUNICODE = 'X',
  APPEND = 'a',
  APPENDS = 'e',
  BUILD = 'b',
  GLOBAL = 'c',
  DICT = 'd',
  EMPTY_DICT = '}',
  BINGET = 'h',
  LONG_BINGET = 'j',
  INST = 'i',
  LIST = 'l',
  EMPTY_LIST = ']',
  OBJ = 'o',
  PERSID = 'P',
  BINPERSID = 'Q',
  BINPUT = 'q',
  LONG_BINPUT = 'r',
  REDUCE = 'R',
  SETITEM = 's',
  SETITEMS = 'u',
  TUPLE = 't',
  EMPTY_TUPLE = ')',
  PROTO = 0x80,
  NEWOBJ = 0x81,
  EXT1 = 0x82,
  EXT2 = 0x83,
  EXT4 = 0x84,
  TUPLE1 = 0x85,
  TUPLE2 = 0x86,
  TUPLE3 = 0x87,
  NEWTRUE = 0x88,
  NEWFALSE = 0x89,
  LONG1 = 0x8a,
  LONG4 = 0x8b,
  SHORT_BINUNICODE = 0x8c,
  BINUNICODE8 = 0x8d,
  NEWOBJ_EX = 0x92,
  STACK_GLOBAL = 0x93,
  MEMOIZE = 0x94,
  FRAME = 0x95,
};

// A list, tuple or dict. Eight bytes, because every container in the file has a node.
class PickleNode {
 public:
  enum class State : uint8_t { open, kept, folded };  // open: not complete yet
  PickleNode(State state, PickleContainer kind, uint64_t value)
      : bits_(value << 4 | static_cast<uint64_t>(kind) << 2 | static_cast<uint64_t>(state)) {}
  State state() const { return static_cast<State>(bits_ & 3); }
  PickleContainer kind() const { return static_cast<PickleContainer>(bits_ >> 2 & 3); }
  // open, kept: the index in Machine::contents (0: empty); folded: the folder's value
  uint64_t value() const { return bits_ >> 4; }

 private:
  uint64_t bits_;
};
static_assert(sizeof(PickleNode) == 8);

}  // namespace

// ---- bytes ----------------------------------------------------------------------------------------------------------------

struct PickleReader::Source {
  std::string path;
  gzFile file = nullptr;
  std::vector<uint8_t> buffer = std::vector<uint8_t>(kPickleBufferBytes);
  size_t at = 0, end = 0;
  uint64_t buffer_offset = 0;  // of buffer[0] in the uncompressed bytes
  uint64_t op_offset = 0;      // of the opcode being executed

  explicit Source(const std::string& file_path) : path(file_path) {
    file = gzopen(path.c_str(), "rb");
    if (file == nullptr) throw Error(fmt::format("cannot open {}: {}", path, std::strerror(errno)), path, "check the file's name");
    gzbuffer(file, kPickleBufferBytes);
  }
  ~Source() { gzclose_r(file); }
  Source(const Source&) = delete;
  Source& operator=(const Source&) = delete;

  uint64_t offset() const { return buffer_offset + at; }
  std::string describe_position() const {
    return fmt::format("{}, byte {}{}", path, op_offset, gzdirect(file) == 1 ? "" : " uncompressed");
  }

  [[noreturn]] void fail(const std::string& what, const std::string& hint) const { throw Error(what, describe_position(), hint); }

  // Makes at least `count` bytes available at buffer[at]. The buffer grows with the bytes read so far, not with `count`.
  void need(size_t count) {
    while (end - at < count) {
      if (at > 0) {
        std::memmove(buffer.data(), buffer.data() + at, end - at);
        buffer_offset += at;
        end -= at;
        at = 0;
      }
      if (end == buffer.size()) buffer.resize(buffer.size() * 2);
      const int got = gzread(file, buffer.data() + end, static_cast<unsigned>(std::min<size_t>(buffer.size() - end, 1 << 30)));
      if (got > 0) {
        end += static_cast<size_t>(got);
        continue;
      }
      int error = Z_OK;
      const char* message = gzerror(file, &error);
      op_offset = offset() + (end - at);
      if (error == Z_OK || error == Z_BUF_ERROR)
        fail("the pickle is cut off", "copy the file again (in binary mode), or take the snapshot again");
      fail(fmt::format("the pickle cannot be read: {}", message), "copy the file again (in binary mode)");
    }
  }
  uint8_t byte() {
    if (at == end) need(1);
    return buffer[at++];
  }
  // Reads a little-endian number.
  uint64_t number(size_t bytes) {
    need(bytes);
    uint64_t value = 0;
    for (size_t i = 0; i < bytes; ++i) value |= static_cast<uint64_t>(buffer[at + i]) << (8 * i);
    at += bytes;
    return value;
  }
  std::string_view view(uint64_t bytes) {
    if (bytes > kMostText) fail(fmt::format("a text of {} bytes", bytes), "this is no memory snapshot of PyTorch");
    need(static_cast<size_t>(bytes));
    const std::string_view text(reinterpret_cast<const char*>(buffer.data() + at), static_cast<size_t>(bytes));
    at += static_cast<size_t>(bytes);
    return text;
  }
};

// ---- the machine: a stack, a memo, and the containers ------------------------------------------------------------------------

struct PickleReader::Machine {
  Source& source;
  StringTable* strings;
  PickleFolder* folder = nullptr;
  std::vector<PickleValue> stack;
  std::vector<size_t> marks;  // sizes of the stack at open marks
  std::vector<PickleValue> memo;
  std::vector<PickleNode> nodes;
  std::deque<std::vector<PickleValue>> contents = std::deque<std::vector<PickleValue>>(1);
  std::vector<uint64_t> free_contents;
  std::vector<uint64_t> wide;  // integers of more than 60 bits; a value's payload is index * 2 + (1 if unsigned)
  std::vector<double> reals;
  uint64_t kept_bytes = 0;
  size_t charged_stack = 0;

  Machine(Source& bytes, StringTable* texts) : source(bytes), strings(texts) {}

  [[noreturn]] void refuse(const std::string& what) const {
    source.fail(what + ": it is refused, because reading it would mean to run code from the file",
                "gpucast reads plain data only, as torch.cuda.memory._dump_snapshot writes it");
  }
  [[noreturn]] void damaged(const std::string& what) const {
    source.fail("the pickle is damaged: " + what, "copy the file again (in binary mode), or take the snapshot again");
  }

  void charge(uint64_t bytes) {
    kept_bytes += bytes;
    if (kept_bytes > kMemoryBase + kMemoryFactor * source.offset()) {
      source.fail("this pickle's content needs far more memory than its size", "this is no memory snapshot of PyTorch, or it is damaged");
    }
  }
  void release(uint64_t bytes) { kept_bytes -= bytes; }

  // ---- stack and memo
  void push(PickleValue value) {
    stack.push_back(value);
    if (stack.size() > charged_stack) {
      charged_stack += 1024;
      charge(1024 * sizeof(PickleValue));
    }
  }
  PickleValue pop() {
    if (stack.size() <= (marks.empty() ? 0 : marks.back())) damaged("a value is missing");
    const PickleValue value = stack.back();
    stack.pop_back();
    return value;
  }
  PickleValue top() const {
    if (stack.size() <= (marks.empty() ? 0 : marks.back())) damaged("a value is missing");
    return stack.back();
  }
  void mark() {
    if (marks.size() == kMostDepth)
      source.fail(fmt::format("more than {} levels of nesting", kMostDepth), "this is no memory snapshot of PyTorch");
    marks.push_back(stack.size());
  }
  size_t pop_mark() {
    if (marks.empty()) damaged("a mark is missing");
    const size_t at = marks.back();
    marks.pop_back();
    return at;
  }
  void store_memo(uint64_t index) {
    // Picklers count up from 0 or 1. Allowing gaps of 256 costs less than 4 KiB.
    if (index > memo.size() + 256) damaged(fmt::format("memo {} comes after memo {}", index, memo.size()));
    const PickleValue value = top();
    if (index >= memo.size()) {
      charge((index + 1 - memo.size()) * sizeof(PickleValue));
      memo.resize(static_cast<size_t>(index) + 1);
    }
    memo[static_cast<size_t>(index)] = value;
  }
  void load_memo(uint64_t index) {
    if (index >= memo.size()) damaged(fmt::format("memo {} was never written", index));
    push(memo[static_cast<size_t>(index)]);
  }

  // ---- values
  void push_integer(int64_t value) {
    constexpr int64_t kMost = int64_t{1} << 59;
    if (value >= -kMost && value < kMost) return push({Kind::integer, static_cast<uint64_t>(value)});
    push_wide(static_cast<uint64_t>(value), false);
  }
  void push_wide(uint64_t bits, bool is_unsigned) {
    charge(sizeof bits);
    wide.push_back(bits);
    push({Kind::wide_integer, (wide.size() - 1) * 2 + (is_unsigned ? 1 : 0)});
  }
  void push_long(uint64_t bytes) {
    if (bytes == 0) return push_integer(0);
    if (bytes == 9) {  // an address of 2^63 or more: a ninth byte, zero, keeps it positive
      const uint64_t low = source.number(8);
      if (source.byte() == 0) return push_wide(low, true);
    }
    if (bytes > 8) source.fail("an integer of more than 64 bits", "this is no memory snapshot of PyTorch");
    uint64_t bits = source.number(static_cast<size_t>(bytes));
    const auto shift = static_cast<unsigned>(64 - 8 * bytes);
    push_integer(static_cast<int64_t>(bits << shift) >> shift);
  }
  void push_real() {
    uint64_t bits = source.number(8);
    bits = __builtin_bswap64(bits);
    charge(sizeof bits);
    reals.push_back(std::bit_cast<double>(bits));
    push({Kind::real, reals.size() - 1});
  }
  void push_text(uint64_t bytes) {
    const std::string_view text = source.view(bytes);
    const size_t before = strings->size();
    const StringId id = strings->intern(text);
    if (strings->size() != before) charge(96 + text.size());
    push({Kind::text, id.index()});
  }

  // ---- containers
  PickleNode& node(PickleValue value) { return nodes[static_cast<size_t>(value.payload())]; }
  PickleValue new_container(PickleContainer kind) {
    charge(sizeof(PickleNode));
    nodes.emplace_back(PickleNode::State::open, kind, 0);
    return {Kind::container, nodes.size() - 1};
  }

  // The open container below the values on the stack, which are to be added to it.
  PickleNode& open_container(PickleValue value, PickleContainer kind, const char* what) {
    if (value.kind() != Kind::container || node(value).kind() != kind)
      damaged(fmt::format("{} without a {}", what, kind == PickleContainer::list ? "list" : "dict"));
    if (node(value).state() != PickleNode::State::open)
      damaged(fmt::format("{} to a {} that is part of another value already", what, kind == PickleContainer::list ? "list" : "dict"));
    return node(value);
  }
  void add_values(PickleNode& to, const PickleValue* values, size_t count) {
    if (count == 0) return;
    if (to.value() == 0) {
      uint64_t place = contents.size();
      if (free_contents.empty()) {
        charge(sizeof(std::vector<PickleValue>));
        contents.emplace_back();
      } else {
        place = free_contents.back();
        free_contents.pop_back();
      }
      to = PickleNode(PickleNode::State::open, to.kind(), place);
    }
    charge(count * sizeof(PickleValue));
    std::vector<PickleValue>& list = contents[to.value()];
    list.insert(list.end(), values, values + count);
  }
  // A container that is put into another one is complete: folds it.
  void complete(PickleValue value) {
    if (value.kind() != Kind::container || node(value).state() != PickleNode::State::open) return;
    const PickleNode before = node(value);
    const std::vector<PickleValue>& list = contents[before.value()];
    const std::optional<uint64_t> folded = folder->fold(before.kind(), list);
    node(value) = folded ? PickleNode(PickleNode::State::folded, before.kind(), *folded)
                         : PickleNode(PickleNode::State::kept, before.kind(), before.value());
    if (!folded || before.value() == 0) return;
    release(list.size() * sizeof(PickleValue));
    // A small vector keeps its memory for the next container; a large one gives it back.
    if (list.capacity() > 1024) {
      contents[before.value()] = {};
    } else {
      contents[before.value()].clear();
    }
    free_contents.push_back(before.value());
  }
  void complete_from(size_t at) {
    for (size_t i = at; i < stack.size(); ++i) complete(stack[i]);
  }
  void append_from(size_t at, PickleContainer kind, const char* what) {
    if (at == 0) damaged(fmt::format("{} without a container", what));
    const PickleValue container = stack[at - 1];
    complete_from(at);
    PickleNode& to = open_container(container, kind, what);
    if (kind == PickleContainer::dict && (stack.size() - at) % 2 != 0) damaged("a key without its value");
    add_values(to, stack.data() + at, stack.size() - at);
    stack.resize(at);
  }
  void make_from(size_t at, PickleContainer kind) {
    complete_from(at);
    if (kind == PickleContainer::dict && (stack.size() - at) % 2 != 0) damaged("a key without its value");
    const PickleValue made = new_container(kind);
    add_values(node(made), stack.data() + at, stack.size() - at);
    stack.resize(at);
    push(made);
  }
  void make_tuple(size_t count) {
    if (stack.size() < (marks.empty() ? 0 : marks.back()) + count) damaged("a tuple's values are missing");
    make_from(stack.size() - count, PickleContainer::tuple);
  }

  // ---- refused content
  std::string read_line() {
    std::string text;
    for (char c = static_cast<char>(source.byte()); c != '\n'; c = static_cast<char>(source.byte())) {
      if (text.size() == kMostName) return text + "...";
      text += c >= ' ' && c <= '~' ? c : '?';
    }
    return text;
  }
  [[noreturn]] void refuse_global(uint8_t op) {
    if (op == STACK_GLOBAL) {
      std::string name;
      for (size_t i = stack.size() < 2 ? 0 : stack.size() - 2; i < stack.size(); ++i) {
        if (stack[i].kind() != Kind::text) continue;
        if (!name.empty()) name += '.';
        for (const char c : strings->text(StringId(static_cast<int64_t>(stack[i].payload()))).substr(0, kMostName))
          name += c >= ' ' && c <= '~' ? c : '?';
      }
      refuse(fmt::format("the pickle asks for the Python object {}", name));
    }
    const std::string module = read_line();
    refuse(fmt::format("the pickle asks for the Python object {}.{}", module, read_line()));
  }

  PickleValue run();
};

PickleValue PickleReader::Machine::run() {
  while (true) {
    source.op_offset = source.offset();
    const uint8_t op = source.byte();
    switch (op) {
      case PROTO: {
        const uint8_t protocol = source.byte();
        if (protocol < 2 || protocol > 5)
          source.fail(fmt::format("a pickle of protocol {}, and 2 to 5 are read", protocol),
                      "take the snapshot again with torch.cuda.memory._dump_snapshot");
        break;
      }
      case FRAME:
        (void)source.number(8);  // a hint on how many bytes to read at once
        break;
      case STOP: {
        const PickleValue result = pop();
        if (!stack.empty() || !marks.empty()) damaged("values are left at the end");
        complete(result);
        return result;
      }
      case MARK:
        mark();
        break;
      case POP:
        if (!marks.empty() && marks.back() == stack.size()) {
          marks.pop_back();
        } else {
          (void)pop();
        }
        break;
      case POP_MARK:
        stack.resize(pop_mark());
        break;

      case NONE:
        push({});
        break;
      case NEWTRUE:
        push({Kind::boolean, 1});
        break;
      case NEWFALSE:
        push({Kind::boolean, 0});
        break;
      case BININT:
        push_integer(static_cast<int32_t>(source.number(4)));
        break;
      case BININT1:
        push_integer(static_cast<int64_t>(source.number(1)));
        break;
      case BININT2:
        push_integer(static_cast<int64_t>(source.number(2)));
        break;
      case LONG1:
        push_long(source.byte());
        break;
      case LONG4:
        push_long(source.number(4));
        break;
      case BINFLOAT:
        push_real();
        break;
      case SHORT_BINUNICODE:
      case SHORT_BINSTRING:
        push_text(source.number(1));
        break;
      case BINUNICODE:
      case BINSTRING:
        push_text(source.number(4));
        break;
      case BINUNICODE8:
        push_text(source.number(8));
        break;

      case EMPTY_LIST:
        push(new_container(PickleContainer::list));
        break;
      case EMPTY_DICT:
        push(new_container(PickleContainer::dict));
        break;
      case EMPTY_TUPLE:
        push(new_container(PickleContainer::tuple));
        break;
      case APPEND:
        if (stack.size() < 2) damaged("APPEND without a list");
        append_from(stack.size() - 1, PickleContainer::list, "APPEND");
        break;
      case APPENDS:
        append_from(pop_mark(), PickleContainer::list, "APPENDS");
        break;
      case SETITEM:
        if (stack.size() < 3) damaged("SETITEM without a dict");
        append_from(stack.size() - 2, PickleContainer::dict, "SETITEM");
        break;
      case SETITEMS:
        append_from(pop_mark(), PickleContainer::dict, "SETITEMS");
        break;
      case LIST:
        make_from(pop_mark(), PickleContainer::list);
        break;
      case DICT:
        make_from(pop_mark(), PickleContainer::dict);
        break;
      case TUPLE:
        make_from(pop_mark(), PickleContainer::tuple);
        break;
      case TUPLE1:
        make_tuple(1);
        break;
      case TUPLE2:
        make_tuple(2);
        break;
      case TUPLE3:
        make_tuple(3);
        break;

      case MEMOIZE:
        store_memo(memo.size());
        break;
      case BINPUT:
        store_memo(source.number(1));
        break;
      case LONG_BINPUT:
        store_memo(source.number(4));
        break;
      case BINGET:
        load_memo(source.number(1));
        break;
      case LONG_BINGET:
        load_memo(source.number(4));
        break;

      case GLOBAL:
      case INST:
      case STACK_GLOBAL:
        refuse_global(op);
      case REDUCE:
      case BUILD:
      case OBJ:
      case NEWOBJ:
      case NEWOBJ_EX:
        refuse("the pickle makes a Python object");
      case PERSID:
      case BINPERSID:
      case EXT1:
      case EXT2:
      case EXT4:
        refuse("the pickle refers to a Python object outside of it");
      default:
        source.fail(fmt::format("a pickle's opcode that is not read: {:#04x}", op),
                    "a memory snapshot holds dicts, lists, texts and numbers only; this file is something else, or damaged");
    }
    if (!marks.empty() && stack.size() < marks.back()) damaged("a value is missing");
  }
}

// ---- PickleReader, the public class ---------------------------------------------------------------------------------------

PickleReader::PickleReader(const std::string& path, StringTable* strings)
    : source_(std::make_unique<Source>(path)), machine_(std::make_unique<Machine>(*source_, strings)) {}
PickleReader::~PickleReader() = default;

PickleValue PickleReader::read(PickleFolder* folder) {
  machine_->folder = folder;
  return machine_->run();
}

std::optional<int64_t> PickleReader::integer(PickleValue value) const {
  if (value.kind() == Kind::integer) return value.signed_payload();
  if (value.kind() != Kind::wide_integer || value.payload() % 2 == 1) return std::nullopt;
  return static_cast<int64_t>(machine_->wide[static_cast<size_t>(value.payload() / 2)]);
}

std::optional<uint64_t> PickleReader::address(PickleValue value) const {
  if (value.kind() == Kind::wide_integer && value.payload() % 2 == 1) return machine_->wide[static_cast<size_t>(value.payload() / 2)];
  const std::optional<int64_t> number = integer(value);
  if (!number || *number < 0) return std::nullopt;
  return static_cast<uint64_t>(*number);
}

std::optional<double> PickleReader::real(PickleValue value) const {
  if (value.kind() == Kind::real) return machine_->reals[static_cast<size_t>(value.payload())];
  const std::optional<int64_t> number = integer(value);
  return number ? std::optional(static_cast<double>(*number)) : std::nullopt;
}

std::optional<StringId> PickleReader::text(PickleValue value) const {
  if (value.kind() != Kind::text) return std::nullopt;
  return StringId(static_cast<int64_t>(value.payload()));
}

std::optional<bool> PickleReader::boolean(PickleValue value) const {
  if (value.kind() != Kind::boolean) return std::nullopt;
  return value.payload() == 1;
}

std::optional<uint64_t> PickleReader::folded(PickleValue value) const {
  if (value.kind() != Kind::container) return std::nullopt;
  const PickleNode& node = machine_->node(value);
  return node.state() == PickleNode::State::folded ? std::optional(node.value()) : std::nullopt;
}

std::optional<std::span<const PickleValue>> PickleReader::items(PickleValue value, PickleContainer kind) const {
  if (value.kind() != Kind::container) return std::nullopt;
  const PickleNode& node = machine_->node(value);
  if (node.state() == PickleNode::State::folded || node.kind() != kind) return std::nullopt;
  return std::span<const PickleValue>(machine_->contents[node.value()]);
}

void PickleReader::charge(uint64_t bytes) { machine_->charge(bytes); }

std::string PickleReader::describe_position() const { return source_->describe_position(); }

bool looks_like_pickle(const std::string& path) {
  struct stat status = {};
  if (stat(path.c_str(), &status) != 0 || !S_ISREG(status.st_mode)) return false;
  const gzFile file = gzopen(path.c_str(), "rb");
  if (file == nullptr) return false;
  std::array<uint8_t, 2> start = {};
  const bool is_pickle =
      gzread(file, start.data(), start.size()) == static_cast<int>(start.size()) && start[0] == PROTO && start[1] >= 2 && start[1] <= 9;
  gzclose_r(file);
  return is_pickle;
}

}  // namespace gpucast
