// Where servers are put: on a map when they have coordinates, on a plane by their delays when not.
// Cards have a size, so what lies too near is pushed apart; the ground below is drawn by us.

import { color } from "./dom.js";

const GAP = 26, ROUNDS = 60;

// The outlines of the continents, coarse: longitude and latitude.
const LAND = [
  [-168, 66, -156, 71, -128, 70, -110, 68, -95, 72, -82, 73, -78, 62, -64, 59, -56, 52, -66, 45, -70, 42, -76, 35, -81, 31, -80, 25, -84, 30, -97, 28, -97, 21, -90, 21, -87, 16, -83, 10, -78, 8, -85, 11, -94, 16, -105, 20, -110, 24, -114, 31, -118, 33, -124, 40, -124, 48, -133, 56, -146, 60, -160, 56, -166, 60],
  [-78, 8, -72, 12, -62, 10, -50, 0, -35, -6, -39, -16, -48, -26, -58, -36, -65, -42, -69, -52, -74, -50, -73, -38, -70, -20, -76, -14, -81, -5, -78, 1],
  [-50, 60, -43, 60, -22, 70, -20, 80, -45, 83, -68, 79, -54, 70],
  [-9, 37, -9, 43, -2, 44, -2, 48, 4, 52, 8, 55, 12, 54, 20, 55, 24, 59, 30, 60, 22, 61, 25, 65, 18, 62, 16, 56, 8, 58, 5, 61, 14, 67, 26, 71, 40, 67, 60, 69, 73, 72, 105, 77, 130, 72, 160, 70, 180, 68, 178, 63, 163, 58, 157, 51, 155, 59, 142, 59, 135, 54, 140, 48, 129, 42, 127, 35, 121, 39, 118, 38, 122, 31, 116, 23, 108, 21, 109, 12, 104, 9, 100, 13, 104, 1, 98, 9, 94, 17, 87, 21, 80, 15, 77, 8, 72, 20, 66, 25, 57, 26, 51, 29, 56, 24, 59, 22, 52, 16, 44, 13, 35, 28, 35, 36, 27, 37, 24, 40, 20, 40, 13, 45, 18, 40, 15, 38, 9, 44, 3, 43, -1, 37],
  [-6, 36, 10, 37, 20, 32, 32, 31, 43, 12, 51, 12, 40, -3, 40, -15, 33, -26, 26, -34, 18, -34, 12, -17, 9, 0, 5, 6, -8, 4, -17, 15, -16, 24],
  [114, -22, 122, -18, 131, -12, 136, -12, 142, -11, 146, -19, 153, -26, 150, -37, 140, -38, 131, -31, 115, -34],
  [-5, 50, 1, 51, 0, 53, -3, 56, -3, 58, -6, 58, -4, 54], [131, 31, 140, 36, 142, 43, 145, 44, 141, 41, 136, 36], [95, 5, 105, -5, 114, -8, 106, -7, 100, -1], [109, 1, 117, 6, 118, 1, 114, -4, 110, -3], [131, -1, 141, -3, 150, -10, 142, -9, 134, -4], [44, -16, 50, -15, 47, -25, 44, -23], [167, -46, 173, -41, 178, -38, 174, -37, 173, -40],
];

// How a view is laid out: "map", "plane", or null when neither is known of most servers.
export function kindOf(servers) {
  const all = Object.values(servers), many = (name) => all.length > 1 && all.filter((server) => server[name]).length * 2 > all.length;
  return many("at") ? "map" : many("plane") ? "plane" : null;
}

// Gives x and y to each of these places, which have a name, a width and a height.
export function spread(places, servers, kind, wide, tall) {
  const known = places.filter((place) => (servers[place.name] || {})[kind === "map" ? "at" : "plane"]);
  const points = new Map(known.map((place) => [place.name, kind === "map" ? lonLat(servers[place.name].at) : servers[place.name].plane]));
  const bounds = kind === "map" ? boundsOf([...points.values()]) : { left: 0, top: 0, width: 1, height: 1 };
  const room = Math.max(wide, 320 * Math.sqrt(known.length)), depth = Math.max(tall, 190 * Math.sqrt(known.length));
  // A degree is as long up as it is across, about the middle of what is seen.
  const across = (room - 260) / bounds.width, up = kind === "map" ? Math.min((depth - 160) / bounds.height, 1.6 * across) : (depth - 160) / bounds.height;
  for (const place of known) {
    const [x, y] = points.get(place.name);
    place.x = 20 + (x - bounds.left) * across;
    place.y = 20 + (kind === "map" ? bounds.top - y : y - bounds.top) * up;
    place.pin = { x: place.x + 12, y: place.y + 12 };
  }
  const shift = pushApart(known);
  let x = 6;
  const below = known.reduce((most, place) => Math.max(most, place.y + place.height), 0) + GAP;
  for (const place of places) if (!known.includes(place)) { Object.assign(place, { x, y: below }); x += place.width + GAP; }
  return { bounds, across, up, shift };
}

function lonLat([latitude, longitude]) { return [longitude, latitude]; }

function boundsOf(points) {
  const longitudes = points.map(([x]) => x), latitudes = points.map(([, y]) => y);
  const left = Math.min(...longitudes) - 4, right = Math.max(...longitudes) + 4, low = Math.min(...latitudes) - 3, top = Math.max(...latitudes) + 3;
  return { left, top, width: Math.max(8, right - left), height: Math.max(6, top - low) };
}

function pushApart(places) {
  for (let round = 0; round < ROUNDS && places.length < 150; round += 1) {
    let moved = false;
    for (let one = 0; one < places.length; one += 1) for (let other = one + 1; other < places.length; other += 1) {
      const a = places[one], b = places[other];
      const dx = Math.min(a.x + a.width, b.x + b.width) - Math.max(a.x, b.x) + GAP, dy = Math.min(a.y + a.height, b.y + b.height) - Math.max(a.y, b.y) + GAP;
      if (dx <= 0 || dy <= 0) continue;
      moved = true;
      if (dx < dy) { const half = (a.x <= b.x ? -dx : dx) / 2; a.x += half; b.x -= half; } else { const half = (a.y <= b.y ? -dy : dy) / 2; a.y += half; b.y -= half; }
    }
    if (!moved) break;
  }
  const left = Math.min(0, ...places.map((place) => place.x - 6)), top = Math.min(0, ...places.map((place) => place.y - 6));
  for (const place of places) { place.x -= left; place.y -= top; place.pin = { x: place.pin.x - left, y: place.pin.y - top }; }
  return { x: -left, y: -top };
}

export function drawGround(pen, ground, kind, width, from, height) {
  if (kind !== "map") return;
  const { bounds, across, up, shift } = ground;
  const x = (longitude) => 32 + shift.x + (longitude - bounds.left) * across, y = (latitude) => 32 + shift.y + (bounds.top - latitude) * up;
  pen.save();
  pen.beginPath();
  pen.rect(0, from, width, height);
  pen.clip();
  pen.fillStyle = color("card");
  pen.strokeStyle = color("line");
  pen.lineWidth = 1;
  for (const outline of LAND) {
    pen.beginPath();
    for (let place = 0; place < outline.length; place += 2) pen.lineTo(x(outline[place]), y(outline[place + 1]));
    pen.closePath();
    pen.fill();
    pen.stroke();
  }
  pen.restore();
}
