//! Classifies digit images: classify digits_weights.bin images.f32, one digit per line.
const c = @import("c");

const Fault = error{ Usage, File, Memory, Model };

fn check(status: c.aotc_status, what: [*:0]const u8) Fault!void {
    if (status != c.AOTC_OK) {
        _ = c.printf("%s: %s\n", what, c.digits_strerror(status));
        return Fault.Model;
    }
}

/// An opened model: its weights, its arena for up to so many images, a context over both.  It stays
/// where it is: the context points to the weights.
const Model = struct {
    weights: c.digits_weights,
    context: c.digits_context,
    arena: *anyopaque,

    fn open(model: *Model, path: [*:0]const u8, batch: i64) Fault!void {
        const bytes = (c.digits_arena_size(batch, 1) + 63) / 64 * 64;
        try check(c.digits_weights_open(&model.weights, path), path);
        errdefer c.digits_weights_close(&model.weights);
        model.arena = c.aligned_alloc(64, bytes) orelse return Fault.Memory;
        errdefer c.free(model.arena);
        try check(c.digits_init(&model.context, &model.weights, model.arena, bytes, null), "init");
    }

    fn close(model: *Model) void {
        c.digits_weights_close(&model.weights);
        c.free(model.arena);
    }

    /// The digits of images of 64 pixels each, with room for their logits.
    fn run(model: *Model, images: []const f32, logits: []f32, digits: []i64) Fault!void {
        const batch: i64 = @intCast(digits.len);
        try check(c.digits_run(&model.context, batch, images.ptr, logits.ptr, digits.ptr), "run");
    }
};

/// So many numbers of C's memory.
fn make(comptime T: type, count: usize) Fault![]T {
    const memory = c.calloc(count + 1, @sizeOf(T)) orelse return Fault.Memory;
    return @as([*]T, @ptrCast(@alignCast(memory)))[0..count];
}

fn read(path: [*:0]const u8) Fault![]f32 {
    const file = c.fopen(path, "rb") orelse return Fault.File;
    defer _ = c.fclose(file);
    if (c.fseek(file, 0, c.SEEK_END) != 0) return Fault.File;
    const size = c.ftell(file);
    if (size < 0 or c.fseek(file, 0, c.SEEK_SET) != 0) return Fault.File;
    const data = try make(f32, @as(usize, @intCast(size)) / @sizeOf(f32));
    if (c.fread(data.ptr, @sizeOf(f32), data.len, file) != data.len) return Fault.File;
    return data;
}

fn classify(weights: [*:0]const u8, path: [*:0]const u8) Fault!void {
    const images = try read(path);
    defer c.free(images.ptr);
    const batch = images.len / 64;
    const logits = try make(f32, batch * 10);
    defer c.free(logits.ptr);
    const digits = try make(i64, batch);
    defer c.free(digits.ptr);
    var model: Model = undefined;
    try model.open(weights, @intCast(batch));
    defer model.close();
    try model.run(images, logits, digits);
    for (digits) |digit| _ = c.printf("%d\n", @as(c_int, @intCast(digit)));
}

pub export fn main(argc: c_int, argv: [*][*:0]u8) c_int {
    if (argc != 3) return 2;
    classify(argv[1], argv[2]) catch |fault| {
        _ = c.printf("%s\n", @errorName(fault).ptr);
        return 1;
    };
    return 0;
}
