//! `--sim`: the simulator, laid out like a CANN installation with nnal.

use crate::arguments::Arguments;
use crate::step::{Invocation, Step};
use crate::{Plan, root};
use anyhow::{Context, Result};
use std::fmt::Write;
use std::path::Path;

const FILE: &str = "libascend_sim.so";
/// What of CANN it stands for. acl-sys knows a simulator by a symbol, whatever the file is called, and takes none that
/// was not asked for.
const STANDS_FOR: [&str; 4] = ["libascendcl.so", "libacl_rt.so", "libacl_mdl.so", "libmsprofiler.so"];
const ATB: &str = "nnal/atb/latest/atb/cxx_abi_1";

pub(crate) fn plan(arguments: &Arguments, target: &Path) -> Result<Plan> {
    let folder = arguments.output.clone().unwrap_or_else(|| target.join("ascend"));
    let folder = std::path::absolute(folder).context("the output folder has no absolute path")?;
    let lib64 = folder.join("lib64");
    let atb = folder.join(ATB);
    let mut plan = Plan::default();
    let mut add = |step| plan.steps.push(step);

    // It is optimised in every profile.
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let build = Invocation::new(cargo).arguments(["build", "-p", "ascend-sim", "--target-dir"]).argument(target);
    add(Step::Run(build.folder(root())));
    for folder in [&lib64, &folder.join("share/info/runtime"), &atb.join("lib"), &folder.join("nnal/atb")] {
        add(Step::Folder(folder.clone()));
    }
    add(Step::Copy { from: target.join("debug").join(FILE), to: lib64.join(FILE) });
    for name in STANDS_FOR {
        add(Step::Link { at: lib64.join(name), to: FILE.into() });
    }
    add(Step::Link { at: atb.join("lib/libspec_atb.so"), to: Path::new("../../../../../../lib64").join(FILE) });
    add(Step::Write {
        file: folder.join("share/info/runtime/version.info"),
        text: "Version=8.5.0\npackage=ascend-sim, a simulator\n".to_owned(),
    });
    let scripts = [("set_env.sh", cann_script(arguments.ceiling())), ("nnal/atb/set_env.sh", atb_script())];
    for (name, text) in scripts {
        add(Step::Write { file: folder.join(name), text });
    }
    let program = std::env::current_exe().context("this program's own file is needed, to run it again")?;
    let smoke = Invocation::new(program).arguments(["smoke", "--simulator"]).argument(lib64.join(FILE));
    add(Step::Run(smoke));

    plan.outcome = vec![
        format!("installed: the simulator, in {}", folder.display()),
        "installed: the spec-decode module, whose operation the simulator has in any case".to_owned(),
        "It is found there by programs of this checkout. For others, and to follow docs/ascend.md, paste:".to_owned(),
        format!("  source {}", folder.join("set_env.sh").display()),
        format!("  source {}", folder.join("nnal/atb/set_env.sh").display()),
        "Try: spec doctor --device ascend-sim".to_owned(),
    ];
    Ok(plan)
}

/// Locates itself, so that the folder may be moved.
const HERE: &str = "here=$(cd \"$(dirname \"${BASH_SOURCE[0]:-$0}\")\" && pwd)\n";

fn cann_script(ceiling: Option<u64>) -> String {
    let mut script = format!(
        "# A simulator in the place of CANN; nothing of the vendor's is here.\n{HERE}\
         export ASCEND_HOME_PATH=\"$here\" ASCEND_TOOLKIT_HOME=\"$here\"\n\
         export SPEC_ASCEND_SIM=\"$here/lib64/{FILE}\"\n\
         export LD_LIBRARY_PATH=\"$here/lib64${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\"\n"
    );
    if let Some(megabytes) = ceiling {
        let _ = writeln!(script, "export SPEC_ATB_MAX_WS_SIZE={megabytes}");
    }
    script + "unset here\n"
}

fn atb_script() -> String {
    format!(
        "# The simulator in the place of nnal.\n{HERE}\
         export ATB_HOME_PATH=\"$here/latest/atb/cxx_abi_1\"\n\
         export SPEC_ATB_SHIM=\"$ATB_HOME_PATH/lib/libspec_atb.so\"\n\
         export LD_LIBRARY_PATH=\"$ATB_HOME_PATH/lib${{LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}}\"\n\
         unset here\n"
    )
}
