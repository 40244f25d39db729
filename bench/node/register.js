// The file that every holder of the hot key writes: who is inside, who was inside last, and when that ended.
import { openSync, readSync, writeSync } from "node:fs";

const ME = BigInt(process.pid);

export class Register {
  constructor(path) {
    this.file = openSync(path, "r+");
    this.bytes = Buffer.alloc(24);
  }

  // Whether somebody else was inside; and for how many ns nobody was, if another process was inside last.
  enter() {
    const { bytes } = this;
    readSync(this.file, bytes, 0, 24, 0);
    const inside = bytes.readBigUInt64LE(0);
    const last = bytes.readBigUInt64LE(8);
    const known = last !== 0n && last !== ME;
    const gap = known ? Number(process.hrtime.bigint() - bytes.readBigUInt64LE(16)) : null;
    bytes.writeBigUInt64LE(ME, 0);
    writeSync(this.file, bytes, 0, 8, 0);
    return { overlap: inside !== 0n, gap };
  }

  // Whether somebody else has been inside meanwhile.
  leave() {
    const { bytes } = this;
    readSync(this.file, bytes, 0, 24, 0);
    const inside = bytes.readBigUInt64LE(0);
    bytes.writeBigUInt64LE(0n, 0);
    bytes.writeBigUInt64LE(ME, 8);
    bytes.writeBigUInt64LE(process.hrtime.bigint(), 16);
    writeSync(this.file, bytes, 0, 24, 0);
    return inside !== ME;
  }
}
