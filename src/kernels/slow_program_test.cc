#include "src/kernels/slow_program.h"

#include <algorithm>
#include <sstream>
#include <stdexcept>

namespace gpucast::slow {
namespace {

std::vector<std::string> split(const std::string& text, const std::string& at) {
  std::vector<std::string> out;
  std::string word;
  int depth = 0;
  for (const char c : text) {
    if (c == '{' || c == '[') ++depth;
    if (c == '}' || c == ']') --depth;
    if (depth == 0 && at.find(c) != std::string::npos) {
      if (!word.empty()) out.push_back(word);
      word.clear();
    } else if (c != ' ') {
      word += c;
    }
  }
  if (!word.empty()) out.push_back(word);
  return out;
}

int bits_of(const std::string& type) {
  if (type == "pred") return 1;
  return type.size() < 2 || std::string("busf").find(type[0]) == std::string::npos ? 0 : std::atoi(type.c_str() + 1);
}

class Reader {
 public:
  Program read(const std::string& text) {
    std::istringstream in(text);
    std::string line;
    uint64_t offset = 0;
    while (std::getline(in, line)) {
      line.erase(0, line.find_first_not_of(' '));
      if (line.rfind(".param", 0) == 0) {
        const uint64_t bytes = line.find("64") == std::string::npos ? 4 : 8;
        offset = (offset + bytes - 1) / bytes * bytes;
        const std::string name = line.substr(line.rfind(' ') + 1);
        out_.parameters[name.substr(0, name.find_first_of(",)"))] = offset;
        offset += bytes;
      } else if (line.rfind(".reg", 0) == 0) {
        const std::vector<std::string> words = split(line, " <>;");
        for (int i = 0; i < std::stoi(words[3]); ++i) add_register(words[2] + std::to_string(i), bits_of(words[1].substr(1)));
      } else if (!line.empty() && line.back() == ':') {
        labels_[line.substr(0, line.size() - 1)] = out_.statements.size();
      } else if (!line.empty() && line.back() == ';' && line[0] != '.') {
        statement(line);
      }
    }
    for (size_t pc = 0; pc < out_.statements.size(); ++pc) {
      Statement& s = out_.statements[pc];
      if (s.does == Does::branch || s.does == Does::leave) {
        if (pc + 1 < out_.statements.size()) out_.statements[pc + 1].leads = true;
      }
      if (s.does != Does::branch) continue;
      s.target = labels_.at(s.label);
      out_.statements[s.target].leads = true;
      if (s.target <= pc) add_loop(s.target, pc);
    }
    return std::move(out_);
  }

 private:
  void add_register(const std::string& name, int bits) {
    out_.registers[name] = static_cast<int>(out_.widths.size());
    out_.widths.push_back(bits);
  }
  void add_loop(size_t head, size_t last) {
    for (Loop& loop : out_.loops) {
      if (loop.head == head) return void(loop.last = std::max(loop.last, last));
    }
    out_.loops.push_back({head, last});
  }
  int register_named(const std::string& name) {
    if (!out_.registers.contains(name)) {
      if (name[0] != '%') throw std::runtime_error("a name: " + name);
      add_register(name, 32);
      out_.specials.emplace_back(out_.registers[name], name);
    }
    return out_.registers[name];
  }
  Operand operand(std::string word) {
    Operand out;
    if (word[0] == '!') out.negated = true, word.erase(0, 1);
    if (word[0] == '{' || word[0] == '[') {
      out.is_address = word[0] == '[';
      word = word.substr(1, word.size() - 2);
    }
    for (const std::string& part : split(word, out.is_address ? "+" : "|,")) {
      if (std::isdigit(part[0]) != 0 || part[0] == '-') {
        out.is_number = !out.is_address;
        out.number += static_cast<uint64_t>(part[0] == '-' ? std::stoll(part) : static_cast<long long>(std::stoull(part, nullptr, 0)));
      } else if (out_.parameters.contains(part)) {
        out.number += out_.parameters[part];
      } else if (part == "shared_bytes") {
        out.is_number = !out.is_address;  // the only array, at 0
      } else {
        out.registers.push_back(register_named(part));
      }
    }
    return out;
  }
  void statement(const std::string& line) {
    Statement s;
    std::string rest = line.substr(0, line.size() - 1);
    if (rest[0] == '@') {
      const size_t end = rest.find(' ');
      s.guard_negated = rest[1] == '!';
      s.guard = register_named(rest.substr(s.guard_negated ? 2 : 1, end - (s.guard_negated ? 2 : 1)));
      rest = rest.substr(end + 1);
    }
    const std::string opcode = rest.substr(0, rest.find(' '));
    s.form.words = split(opcode, ".");
    s.base = s.form.words[0];
    rest = rest.size() > opcode.size() ? rest.substr(opcode.size() + 1) : "";
    if (s.base == "bra") {
      s.label = rest;
    } else {
      for (const std::string& word : split(rest, ",")) s.operands.push_back(operand(word));
    }
    classify(&s);
    out_.statements.push_back(std::move(s));
  }
  void classify(Statement* s);

  Program out_;
  std::map<std::string, size_t> labels_;
};

void Reader::classify(Statement* s) {
  static const std::map<std::string, Does> deeds = {
      {"setp", Does::compare},       {"ld", Does::load},    {"st", Does::store},   {"atom", Does::atomic}, {"red", Does::atomic},
      {"shfl", Does::shuffle},       {"vote", Does::vote},  {"bra", Does::branch}, {"ret", Does::leave},   {"exit", Does::leave},
      {"redux", Does::reduce_lanes}, {"addc", Does::carry}, {"subc", Does::carry}, {"cp", Does::copy},     {"bar", Does::barrier}};
  Form& f = s->form;
  std::vector<std::string> types;
  for (size_t w = 1; w < f.words.size(); ++w) {
    if (bits_of(f.words[w]) > 0) types.push_back(f.words[w]);
  }
  if (!types.empty()) {
    f.bits = bits_of(types.front()), f.is_signed = types.front()[0] == 's';
    f.source_bits = bits_of(types.back()), f.source_is_signed = types.back()[0] == 's';
  }
  f.hi = f.has("hi"), f.sat = f.has("sat"), f.shiftamt = f.has("shiftamt"), f.wrap = f.has("wrap"), f.clamp = f.has("clamp"),
  f.left = f.has("l");
  s->fills = f.has("wide");
  for (const char* base : {"cvt", "cvta", "popc", "clz", "bfind"}) s->fills = s->fills || s->base == base;
  const bool is_float = !types.empty() && (types.front()[0] == 'f' || types.back()[0] == 'f');
  if (const auto found = deeds.find(s->base); found != deeds.end()) s->does = found->second;
  if (f.has("cc")) s->does = Does::carry;
  if (s->does == Does::copy && f.words[1] != "async") throw std::runtime_error("cp");
  if (s->does == Does::copy && s->operands.size() < 2) s->does = Does::nothing;
  s->space = f.has("shared") && s->does != Does::copy ? 1 : f.has("param") ? 2 : 0;
  const bool touches = s->does == Does::load || s->does == Does::store || s->does == Does::atomic;
  if (touches) s->bytes = static_cast<uint64_t>(f.bits / 8) * (f.has("v4") ? 4 : f.has("v2") ? 2 : 1);
  if (s->does == Does::copy) s->bytes = s->operands[2].number;
  const auto is_one_of = [&](std::initializer_list<const char*> bases) {
    return std::any_of(bases.begin(), bases.end(), [&](const char* base) { return s->base == base; });
  };
  if (is_one_of({"mov", "cvta"}) || (s->does == Does::load && s->space == 2)) {
    s->sort = Sort::none;
  } else if (touches || s->does == Does::copy || is_one_of({"shfl", "redux"})) {
    s->sort = Sort::memory;
  } else if (is_one_of({"bra", "ret", "exit", "bar", "cp"})) {
    s->sort = Sort::control;
  } else if (is_float) {
    s->sort = s->base == "cvt" || is_one_of({"ex2", "rcp", "sqrt"}) ? Sort::special : Sort::fp32;
    if (s->base != "cvt" && s->base != "setp" && s->base != "neg") s->flops = s->base == "fma" ? 2 : 1;
  } else {
    s->sort = Sort::integer;
  }
  if (s->does != Does::nothing || is_float) return;
  if (s->base == "cvta") {
    s->does = Does::arithmetic, s->rule = rules().at("mov");
  } else if (const auto found = rules().find(s->base); found != rules().end()) {
    s->does = Does::arithmetic, s->rule = found->second;
  } else if (s->sort != Sort::control) {
    throw std::runtime_error("an instruction: " + s->base);
  }
}

}  // namespace

Program read_program(const std::string& text) { return Reader().read(text); }

}  // namespace gpucast::slow
