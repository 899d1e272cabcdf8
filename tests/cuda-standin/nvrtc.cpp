// NVRTC's entry points. The source is preprocessed with the prelude, its
// kernels are found and given entries, and the host's g++ compiles the rest.
#include "module.h"

#include <cctype>
#include <cstdint>
#include <cstdio>
#include <cstring>
#include <cerrno>
#include <fcntl.h>
#include <fstream>
#include <mutex>
#include <spawn.h>
#include <sstream>
#include <string>
#include <sys/stat.h>
#include <sys/wait.h>
#include <unistd.h>
#include <vector>

extern char **environ;

namespace standin {
namespace {

enum NvrtcStatus {
    nvrtc_success = 0,
    nvrtc_invalid_input = 3,
    nvrtc_invalid_program = 4,
    nvrtc_invalid_option = 5,
    nvrtc_compilation = 6,
};

struct Program {
    std::string source, name, log, image;
    std::vector<std::pair<std::string, std::string>> headers;
    bool cubin = false;
};

std::string read_file(const std::string &path) {
    std::ifstream in(path, std::ios::binary);
    std::stringstream s;
    s << in.rdbuf();
    return s.str();
}

// Through a name of its own, so that nobody sees half a file.
bool write_file(const std::string &path, const std::string &text) {
    std::string half = path + "." + std::to_string(getpid());
    std::ofstream out(half, std::ios::binary);
    out << text;
    out.close();
    return out && rename(half.c_str(), path.c_str()) == 0;
}

uint64_t fnv(const std::string &text, uint64_t hash) {
    for (unsigned char c : text) hash = (hash ^ c) * 0x100000001b3u;
    return hash;
}

int run(std::vector<std::string> command, const std::string &errors) {
    std::vector<char *> argv;
    for (auto &a : command) argv.push_back(&a[0]);
    argv.push_back(nullptr);
    posix_spawn_file_actions_t actions;
    posix_spawn_file_actions_init(&actions);
    posix_spawn_file_actions_addopen(&actions, 2, errors.c_str(), O_WRONLY | O_CREAT | O_TRUNC, 0644);
    pid_t pid;
    int status = posix_spawnp(&pid, argv[0], &actions, nullptr, argv.data(), environ);
    posix_spawn_file_actions_destroy(&actions);
    if (status) return -1;
    while (waitpid(pid, &status, 0) < 0 && errno == EINTR) {}
    return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

bool word_char(char c) { return isalnum((unsigned char)c) || c == '_'; }

// The end of a parenthesis that opens at `at`.
size_t closing(const std::string &s, size_t at) {
    int depth = 0;
    for (; at < s.size(); at++) {
        if (s[at] == '(') depth++;
        if (s[at] == ')' && --depth == 0) return at;
    }
    return std::string::npos;
}

// Blanks a word and keeps every line where it was.
void blank(std::string &s, size_t from, size_t to) {
    for (size_t i = from; i < to; i++)
        if (s[i] != '\n') s[i] = ' ';
}

size_t find_word(const std::string &s, const char *word, size_t from) {
    size_t n = strlen(word);
    for (size_t at = from; (at = s.find(word, at)) != std::string::npos; at += n)
        if ((at == 0 || !word_char(s[at - 1])) && !word_char(s[at + n])) return at;
    return std::string::npos;
}

bool is_template(const std::string &s, size_t at) {
    size_t start = s.find_last_of(";}#", at);
    start = start == std::string::npos ? 0 : start;
    size_t found = find_word(s, "template", start);
    return found < at;
}

// `extern __shared__ T name[];` has no size that a compiler could know: it
// becomes a pointer to the launch's memory. `__shared__` is already replaced.
void dynamic_shared(std::string &s) {
    for (size_t at = 0; (at = find_word(s, "extern", at)) != std::string::npos; at += 6) {
        size_t end = s.find(';', at);
        size_t shared = find_word(s, "thread_local", at);
        if (shared > end || s.find_first_of("{\"", at) < shared) continue;
        size_t open = s.rfind('[', end);
        if (open == std::string::npos || open < shared) continue;
        size_t name_end = open;
        while (name_end > shared && !word_char(s[name_end - 1])) name_end--;
        size_t name = name_end;
        while (name > shared && word_char(s[name - 1])) name--;
        std::string type = s.substr(shared + 12, name - shared - 12);
        // An alignment belongs to the array; the memory has it anyway.
        for (size_t a; (a = find_word(type, "__attribute__", 0)) != std::string::npos;)
            blank(type, a, closing(type, a) + 1);
        for (size_t a; (a = find_word(type, "alignas", 0)) != std::string::npos;)
            blank(type, a, closing(type, a) + 1);
        std::string pointer = type + "*" + s.substr(name, name_end - name) + " = (" + type +
                              "*)standin_dynamic_shared()";
        // Line directives stay right as long as no line end is lost.
        s.replace(at, end - at, pointer);
    }
}

// Finds `__global__ void name(...)`, takes the word out, and appends an entry.
void kernel_entries(std::string &s) {
    std::string entries = "\n# 1 \"<stand-in>\"\n"
                          "static thread_local char standin_shared_anchor;\n"
                          "extern \"C\" void *standin_touch_shared() { return &standin_shared_anchor; }\n";
    std::vector<std::string> seen;
    for (size_t at = 0; (at = find_word(s, "__global__", at)) != std::string::npos;) {
        blank(s, at, at + 10);
        bool generic = is_template(s, at);
        std::string bounds = "0";
        size_t body = s.find('{', at);
        size_t launch = find_word(s, "__launch_bounds__", at);
        if (launch < body) {
            size_t open = s.find('(', launch), close = closing(s, open);
            bounds = s.substr(open + 1, close - open - 1);
            // The first argument: the commas of the others are not nested.
            int depth = 0;
            for (size_t i = 0; i < bounds.size(); i++) {
                depth += bounds[i] == '(' || bounds[i] == '<';
                depth -= bounds[i] == ')' || bounds[i] == '>';
                if (bounds[i] == ',' && !depth) bounds.resize(i);
            }
            blank(s, launch, close + 1);
        }
        size_t open = s.find('(', find_word(s, "void", at));
        if (open == std::string::npos) break;
        size_t end = open;
        while (end > at && isspace((unsigned char)s[end - 1])) end--;
        size_t name = end;
        while (name > at && word_char(s[name - 1])) name--;
        std::string kernel = s.substr(name, end - name);
        bool again = false;
        for (auto &k : seen) again |= k == kernel;
        if (generic || again) continue;
        seen.push_back(kernel);
        entries += "static void standin_call_" + kernel + "(void **p) { standin_call(&" + kernel + ", p); }\n" +
                   "extern \"C\" const standin_entry standin_entry_" + kernel + " = {standin_call_" + kernel +
                   ", standin_sizes(&" + kernel + "), standin_arity(&" + kernel + "), " + bounds + "};\n";
    }
    s += entries;
}

int compile(Program &p, const std::vector<std::string> &options) {
    std::string contract = "-ffp-contract=fast"; // as nvcc's -fmad=true
    std::vector<std::string> front;
    p.cubin = false;
    for (size_t i = 0; i < options.size(); i++) {
        const std::string &o = options[i];
        auto value = [&](const char *name) -> const char * {
            size_t n = strlen(name);
            return o.compare(0, n, name) == 0 && o[n] == '=' ? o.c_str() + n + 1 : nullptr;
        };
        if (const char *arch = value("--gpu-architecture")) p.cubin = strncmp(arch, "sm_", 3) == 0;
        else if (const char *arch = value("-arch")) p.cubin = strncmp(arch, "sm_", 3) == 0;
        else if (const char *v = value("--fmad")) contract = strcmp(v, "false") ? contract : "-ffp-contract=off";
        else if (const char *v = value("-fmad")) contract = strcmp(v, "false") ? contract : "-ffp-contract=off";
        else if (const char *v = value("--include-path")) front.push_back(std::string("-I") + v);
        else if (const char *v = value("--define-macro")) front.push_back(std::string("-D") + v);
        else if (o.compare(0, 2, "-I") == 0 || o.compare(0, 2, "-D") == 0) front.push_back(o);
        else if (o.compare(0, 1, "-") != 0) {
            p.log = "nvrtc: error: invalid value for an option: " + o;
            return nvrtc_invalid_option;
        }
        // What is left is of no meaning on a CPU: registers, flushing, line tables.
    }
    std::string cache = STANDIN_BUILD_DIR "/kernels";
    mkdir(cache.c_str(), 0755);
    std::string key = STANDIN_HOST_FLAGS;
    for (auto &o : front) key += o + "\n";
    key += contract + "\n";
    for (auto &h : p.headers) key += h.first + "\n" + h.second;
    char hash[33];
    snprintf(hash, sizeof hash, "%016llx%016llx",
             (unsigned long long)fnv(key + p.source, 0xcbf29ce484222325u),
             (unsigned long long)fnv(p.source + key, 0x9ae16a3b2f90404fu));
    std::string stem = cache + "/" + hash;
    std::string object = stem + ".so";
    // One compilation at a time: threads of a test ask for the same ones.
    static std::mutex one;
    std::lock_guard<std::mutex> lock(one);
    bool includes = !front.empty(); // of files that may have changed
    if (access(object.c_str(), R_OK) == 0 && !includes) {
        p.image = module_image(object);
        return nvrtc_success;
    }
    std::string mine = stem + "." + std::to_string(getpid());
    std::string directory = mine + ".d";
    mkdir(directory.c_str(), 0755);
    for (auto &h : p.headers) write_file(directory + "/" + h.first, h.second);
    std::string shown = p.name.empty() ? "default_program" : p.name;
    // The line directive makes errors name the program, as NVRTC does.
    write_file(directory + "/source.cu", "# 1 \"" + shown + "\"\n" + p.source);
    std::vector<std::string> preprocess = {"g++", "-E", "-x", "c++", "-std=c++17", "-nostdinc", "-nostdinc++"};
    preprocess.insert(preprocess.end(), {"-I" + directory, "-include", STANDIN_SOURCE_DIR "/prelude.h"});
    preprocess.insert(preprocess.end(), front.begin(), front.end());
    preprocess.insert(preprocess.end(), {directory + "/source.cu", "-o", directory + "/unit.ii"});
    int status = run(preprocess, directory + "/log");
    if (status == 0) {
        std::string unit = read_file(directory + "/unit.ii");
        dynamic_shared(unit);
        kernel_entries(unit);
        write_file(directory + "/unit.ii", unit);
        std::vector<std::string> back = {"g++", "-x", "c++-cpp-output", "-std=gnu++17", "-O2", "-w", "-shared",
                                         "-fPIC", "-fno-math-errno", "-fno-trapping-math",
                                         "-fno-strict-aliasing", "-fno-exceptions", "-fno-rtti",
                                         "-fno-stack-protector", "-fstack-clash-protection", contract};
        std::stringstream host(STANDIN_HOST_FLAGS);
        for (std::string f; host >> f;) back.push_back(f);
        back.insert(back.end(), {directory + "/unit.ii", "-o", directory + "/unit.so", "-x", "none",
                                 STANDIN_BUILD_DIR "/libpplx-cuda-standin.so", "-lm"});
        status = run(back, directory + "/log");
        if (status == 0 && rename((directory + "/unit.so").c_str(), object.c_str()) != 0) status = -1;
    }
    p.log = read_file(directory + "/log");
    for (auto &h : p.headers) unlink((directory + "/" + h.first).c_str());
    for (const char *f : {"/source.cu", "/unit.ii", "/unit.so", "/log"}) unlink((directory + f).c_str());
    rmdir(directory.c_str());
    if (status < 0) p.log += "the stand-in cannot run g++, or write to " + cache;
    if (status != 0) return nvrtc_compilation;
    p.image = module_image(object);
    return nvrtc_success;
}

} // namespace
} // namespace standin

using namespace standin;

extern "C" {

int nvrtcVersion(int *major, int *minor) {
    // Of no real NVRTC: a cache of compiled kernels must not mix the two.
    *major = 12, *minor = 99;
    return nvrtc_success;
}
const char *nvrtcGetErrorString(int status) {
    switch (status) {
    case nvrtc_success: return "NVRTC_SUCCESS";
    case nvrtc_invalid_input: return "NVRTC_ERROR_INVALID_INPUT";
    case nvrtc_invalid_program: return "NVRTC_ERROR_INVALID_PROGRAM";
    case nvrtc_invalid_option: return "NVRTC_ERROR_INVALID_OPTION";
    case nvrtc_compilation: return "NVRTC_ERROR_COMPILATION";
    default: return "NVRTC_ERROR unknown";
    }
}
int nvrtcGetNumSupportedArchs(int *n) { return *n = 2, nvrtc_success; }
int nvrtcGetSupportedArchs(int *archs) { return archs[0] = 80, archs[1] = 90, nvrtc_success; }
int nvrtcCreateProgram(Program **program, const char *source, const char *name, int headers,
                       const char *const *texts, const char *const *names) {
    if (!program || !source) return nvrtc_invalid_input;
    auto p = new Program;
    p->source = source;
    if (name) p->name = name;
    for (int i = 0; i < headers; i++) p->headers.emplace_back(names[i], texts[i]);
    *program = p;
    return nvrtc_success;
}
int nvrtcDestroyProgram(Program **program) {
    if (!program || !*program) return nvrtc_invalid_program;
    delete *program;
    *program = nullptr;
    return nvrtc_success;
}
int nvrtcCompileProgram(Program *p, int n, const char *const *options) {
    if (!p) return nvrtc_invalid_program;
    return compile(*p, std::vector<std::string>(options, options + n));
}
int nvrtcGetProgramLogSize(Program *p, size_t *size) { return *size = p->log.size() + 1, nvrtc_success; }
int nvrtcGetProgramLog(Program *p, char *log) {
    memcpy(log, p->log.c_str(), p->log.size() + 1);
    return nvrtc_success;
}
int nvrtcGetPTXSize(Program *p, size_t *size) {
    if (p->image.empty()) return nvrtc_invalid_program;
    return *size = p->image.size() + 1, nvrtc_success;
}
int nvrtcGetPTX(Program *p, char *ptx) {
    if (p->image.empty()) return nvrtc_invalid_program;
    memcpy(ptx, p->image.c_str(), p->image.size() + 1);
    return nvrtc_success;
}
// As with the real one: zero bytes where the architecture is a virtual one.
int nvrtcGetCUBINSize(Program *p, size_t *size) {
    if (p->image.empty()) return nvrtc_invalid_program;
    return *size = p->cubin ? p->image.size() + 1 : 0, nvrtc_success;
}
int nvrtcGetCUBIN(Program *p, char *cubin) { return p->cubin ? nvrtcGetPTX(p, cubin) : nvrtc_invalid_program; }
}
