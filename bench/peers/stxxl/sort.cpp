// Sorts a file of fixed-length records with STXXL: 100-byte records by their first ten bytes, or little-endian u64
// integers by value. The input is streamed from a vector over its file, sorted by runs and merged with `stream::sort`,
// and written through a vector over the output file. Runs lie in one file in TEMP, which STXXL removes when it opens it.
//
//     stxxl-peer records|u64 INPUT OUTPUT TEMP MEMORY_BYTES
//
// MEMORY_BYTES is what STXXL gets for each of its two phases. STXXL requests blocks of 2 MiB, its default; for records
// the nearest size that whole records and whole sectors fill.

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <exception>
#include <iostream>
#include <limits>
#include <string>

#include <fcntl.h>
#include <unistd.h>

#include <stxxl/io>
#include <stxxl/mng>
#include <stxxl/stream>
#include <stxxl/vector>

namespace {

struct Record {
    unsigned char bytes[100];
};

constexpr std::size_t key_bytes = 10;

struct RecordOrder {
    bool operator()(const Record& left, const Record& right) const {
        return std::memcmp(left.bytes, right.bytes, key_bytes) < 0;
    }
    Record min_value() const {
        Record record;
        std::memset(&record, 0, sizeof record);
        return record;
    }
    Record max_value() const {
        Record record;
        std::memset(&record, 255, sizeof record);
        return record;
    }
};

struct IntegerOrder {
    bool operator()(std::uint64_t left, std::uint64_t right) const { return left < right; }
    std::uint64_t min_value() const { return 0; }
    std::uint64_t max_value() const { return std::numeric_limits<std::uint64_t>::max(); }
};

// A block holds whole records, so that a vector over a file sees the file's bytes without gaps.
constexpr unsigned integer_block = 2U << 20;
constexpr unsigned record_block = 20U * 102400U;

template <typename Value, unsigned block_bytes, typename Order>
void sort_file(const std::string& from, const std::string& to, std::size_t memory) {
    using Vector = stxxl::vector<Value, 4, stxxl::lru_pager<2>, block_bytes>;
    stxxl::syscall_file input(from, stxxl::file::RDONLY | stxxl::file::DIRECT, 0);
    stxxl::syscall_file output(to, stxxl::file::RDWR | stxxl::file::CREAT | stxxl::file::TRUNC | stxxl::file::DIRECT, 1);
    {
        const Vector unsorted(&input);
        Vector sorted(&output);
        sorted.resize(unsorted.size());
        using Input = typename stxxl::stream::streamify_traits<typename Vector::const_iterator>::stream_type;
        Input stream = stxxl::stream::streamify(unsorted.begin(), unsorted.end());
        stxxl::stream::sort<Input, Order, block_bytes> runs(stream, Order(), memory);
        stxxl::stream::materialize(runs, sorted.begin(), sorted.end());
        sorted.flush();
    }
}

void sync_file(const std::string& path) {
    const int descriptor = ::open(path.c_str(), O_RDONLY);
    if (descriptor < 0 || ::fsync(descriptor) != 0)
        throw std::runtime_error("cannot sync " + path + ": " + std::strerror(errno));
    ::close(descriptor);
}

}  // namespace

int main(int count, char** words) {
    if (count != 6) {
        std::cerr << "stxxl-peer records|u64 INPUT OUTPUT TEMP MEMORY_BYTES\n";
        return 2;
    }
    const std::string kind = words[1], from = words[2], to = words[3], temp = words[4];
    const std::size_t memory = std::strtoull(words[5], nullptr, 10);
    try {
        stxxl::disk_config disk(temp + "/stxxl", 0, "syscall autogrow unlink");
        stxxl::config::get_instance()->add_disk(disk);
        if (kind == "u64")
            sort_file<std::uint64_t, integer_block, IntegerOrder>(from, to, memory);
        else if (kind == "records")
            sort_file<Record, record_block, RecordOrder>(from, to, memory);
        else
            throw std::invalid_argument("no kind '" + kind + "': records or u64");
        sync_file(to);
    } catch (const std::exception& error) {
        std::cerr << "stxxl-peer: " << error.what() << '\n';
        return 1;
    }
    return 0;
}
