// The program: the one that is asked for, that of the platform's package, or the one on PATH. Nothing runs at installation.
import { createRequire } from "node:module";

const packages = { "linux x64": "safepoint-linux-x64", "linux arm64": "safepoint-linux-arm64" };

/** Returns the program to start. */
export function findProgram(given) {
  const asked = given ?? process.env.SAFEPOINT_BIN;
  if (asked !== undefined && asked !== "") return asked;
  const name = packages[`${process.platform} ${process.arch}`];
  if (name !== undefined) {
    try {
      return createRequire(import.meta.url).resolve(`${name}/bin/safepoint`);
    } catch {
      // It is optional.
    }
  }
  return "safepoint";
}
