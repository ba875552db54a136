//! The CPU path, and GPUs.

use super::machines::Folder;

#[test]
fn huge_pages_that_are_off_cost_a_line() {
    let folder = Folder::plain();
    folder.write("/sys/kernel/mm/transparent_hugepage/enabled", "always madvise [never]\n");
    folder.look(None).says(0, &["warning  huge pages: never"]).fixes(&["echo madvise | sudo tee /sys/kernel/mm"]);
    folder.remove("/sys/kernel/mm/transparent_hugepage/enabled");
    folder.look(None).says(0, &["this kernel has none"]);
}

#[test]
fn an_instruction_set_that_is_not_here_fails_the_cpu() {
    let mut folder = Folder::plain();
    folder.set("SPEC_CPU_ISA", "abacus");
    let seen = folder.look(None);
    seen.says(1, &["abacus", "cpu cannot be used (exit code 1)"]).fixes(&["unset SPEC_CPU_ISA"]);
    folder.set("SPEC_CPU_ISA", "portable");
    folder.look(None).says(0, &["warning  instructions: portable kernels"]);
}

#[test]
fn little_memory_is_a_warning_of_the_machine_or_of_its_container() {
    let folder = Folder::plain();
    folder.look(None).says(0, &["ok       memory: 16384 of 32768 MiB available"]);
    folder.write("/sys/fs/cgroup/memory.max", "536870912\n");
    folder.look(None).says(0, &["warning  memory: ", "512 MiB allowed to this container"]);
    folder.write("/sys/fs/cgroup/memory.max", "max\n");
    folder.write("/proc/meminfo", "MemTotal: 33554432 kB\nMemAvailable: 65536 kB\n");
    folder.look(None).says(0, &["warning  memory: 64 of 32768 MiB available"]);
}

#[test]
fn few_descriptors_are_a_warning() {
    let folder = Folder::plain();
    let limits =
        "Max locked memory         8388608     8388608     bytes\nMax open files            256     4096     files\n";
    folder.write("/proc/self/limits", limits);
    folder.look(None).says(0, &["256 open files, 8388608 bytes of locked memory"]).fixes(&["ulimit -n"]);
}

#[test]
fn a_gpu_is_seen_and_said_to_be_not_built_for() {
    let folder = Folder::plain();
    folder.write("/proc/driver/nvidia/version", "NVRM version: NVIDIA UNIX x86_64  Kernel Module  550.1\nGCC 12\n");
    folder.write("/usr/local/cuda/any", "");
    folder.look(None).says(0, &["NVIDIA UNIX x86_64 Kernel Module 550.1", "/usr/local/cuda", "not built yet"]);
    folder.look(Some("cuda")).says(4, &["CUDA is a known device that is not built yet"]);
    Folder::plain().look(Some("cuda")).says(4, &["not built yet", "the CPU can be used"]);
}
