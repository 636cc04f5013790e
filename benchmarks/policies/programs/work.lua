-- Work for an interpreter: calls, tables, strings and floating point.

local function queens(n, row, columns, up, down)
  if row > n then return 1 end
  local found = 0
  for column = 1, n do
    if not (columns[column] or up[row + column] or down[row - column]) then
      columns[column], up[row + column], down[row - column] = true, true, true
      found = found + queens(n, row + 1, columns, up, down)
      columns[column], up[row + column], down[row - column] = nil, nil, nil
    end
  end
  return found
end

local function words(count)
  local state, made = 1, {}
  for i = 1, count do
    state = state * 16807 % 2147483647
    made[i] = string.format("%x-%d", state, i % 97)
  end
  table.sort(made)
  local tails = {}
  for _, word in ipairs(made) do
    local tail = word:match("%-(%d+)$")
    tails[tail] = (tails[tail] or 0) + #word:gsub("[a-f]", "")
  end
  return tails["5"]
end

local function heat(size, steps)
  local now = {}
  for i = 1, size do now[i] = i % 10 / 10 end
  for _ = 1, steps do
    local next = { now[1] }
    for i = 2, size - 1 do next[i] = 0.25 * now[i - 1] + 0.5 * now[i] + 0.25 * now[i + 1] end
    next[size], now = now[size], next
  end
  return now[size // 2]
end

print(queens(8, 1, {}, {}, {}), words(60000), heat(2000, 500))
