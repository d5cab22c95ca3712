// A layered layout, left to right: a box's layer is one more than its deepest input's; within a
// layer boxes are sorted by the mean place of their neighbours, to and fro, so that few lines cross.

const GAP_X = 54, GAP_Y = 16, MARGIN = 16, SWEEPS = 8;

export function layOut(boxes) {
  // boxes: [{name, inputs: [names], width, height, last?}]; gives x and y to each of them.
  const named = new Map(boxes.map((box) => [box.name, box]));
  for (const box of boxes) box.layer = 0;
  const order = sorted(boxes, named);
  for (const box of order) for (const name of box.inputs) {
    if (named.has(name)) box.layer = Math.max(box.layer, named.get(name).layer + 1);
  }
  pullSources(boxes, named);
  const layers = [];
  for (const box of order) (layers[box.layer] ||= []).push(box);
  for (let layer = 0; layer < layers.length; layer += 1) layers[layer] ||= [];
  sortLayers(layers, named);
  place(layers, named);
  return {
    width: Math.max(...boxes.map((box) => box.x + box.width), 0) + MARGIN,
    height: Math.max(...boxes.map((box) => box.y + box.height), 0) + MARGIN,
  };
}

function sorted(boxes, named) {
  const done = new Set(), found = [];
  const visit = (box) => {
    if (done.has(box)) return;
    done.add(box);
    for (const name of box.inputs) if (named.has(name)) visit(named.get(name));
    found.push(box);
  };
  boxes.forEach(visit);
  return found;
}

function pullSources(boxes, named) {
  // What reads nothing stands right before whoever reads it first.
  const first = new Map();
  for (const box of boxes) for (const name of box.inputs) {
    first.set(name, Math.min(first.get(name) ?? Infinity, box.layer));
  }
  for (const box of boxes) {
    if (!box.inputs.some((name) => named.has(name)) && first.has(box.name)) {
      box.layer = first.get(box.name) - 1;
    }
  }
}

function sortLayers(layers, named) {
  const readers = new Map();
  for (const layer of layers) for (const box of layer) for (const name of box.inputs) {
    if (!readers.has(name)) readers.set(name, []);
    readers.get(name).push(box);
  }
  for (const layer of layers) layer.forEach((box, place) => { box.place = place / Math.max(1, layer.length - 1); });
  for (let sweep = 0; sweep < SWEEPS; sweep += 1) {
    const forward = sweep % 2 === 0;
    for (const layer of forward ? layers : [...layers].reverse()) {
      for (const box of layer) {
        const near = forward ? box.inputs.map((name) => named.get(name)).filter(Boolean) : readers.get(box.name) || [];
        box.wish = near.length ? near.reduce((sum, each) => sum + each.place, 0) / near.length : box.place;
      }
      layer.sort((one, other) => one.wish - other.wish || one.place - other.place);
      layer.forEach((box, place) => { box.place = layer.length > 1 ? place / (layer.length - 1) : box.wish; });
    }
  }
}

function place(layers, named) {
  const heights = layers.map((layer) => layer.reduce((sum, box) => sum + box.height + GAP_Y, -GAP_Y));
  const tallest = Math.max(...heights, 0);
  let x = MARGIN;
  layers.forEach((layer, index) => {
    const width = Math.max(...layer.map((box) => box.width), 0);
    let y = MARGIN + 24 + (tallest - heights[index]) / 2;
    for (const box of layer) {
      box.x = x + (width - box.width) / 2;
      box.y = y;
      y += box.height + GAP_Y;
    }
    x += width + GAP_X;
  });
}

export function curve(from, to) {
  const x0 = from.x + from.width, y0 = from.y + from.height / 2, x1 = to.x, y1 = to.y + to.height / 2;
  const bend = Math.max(20, (x1 - x0) / 2);
  return `M${x0},${y0} C${x0 + bend},${y0} ${x1 - bend},${y1} ${x1},${y1}`;
}
